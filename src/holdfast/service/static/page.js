// Logarithmic sliders, kept in sync with the number field beside them.
for (const slider of document.querySelectorAll("input.log")) {
  const field = document.getElementById(slider.dataset.for);
  const least = Math.log(slider.dataset.least), most = Math.log(slider.dataset.most);
  const update = () => {
    const value = Number(field.value);
    if (value > 0) slider.value = 1000 * (Math.log(value) - least) / (most - least);
  };
  slider.addEventListener("input", () => {
    const value = Math.exp(least + (most - least) * slider.value / 1000);
    field.value = value < 1 ? value.toPrecision(2) : Number(value.toPrecision(2)).toFixed(0);
  });
  field.addEventListener("input", update);
  update();
  slider.hidden = false;
}
// A file that is chosen is read into the field that the form sends.
for (const file of document.querySelectorAll("input[type=file][data-for]")) {
  file.closest("[hidden]").hidden = false;
  file.addEventListener("change", () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => { document.getElementById(file.dataset.for).value = reader.result; });
    reader.readAsText(chosen);
  });
}
// What is to be copied gets a button; where the clipboard is closed to pages, the text is selected instead.
const offerCopies = () => {
  for (const box of document.querySelectorAll(".copied:not(:has(.copy))")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = box.querySelector("code");
      getSelection().selectAllChildren(code);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }
};
offerCopies();
document.addEventListener("htmx:afterSettle", offerCopies);
// How a question stands is said where its price was. A price that is not that of what is entered looks like none, and
// one that comes after its question was asked is of no use.
const form = document.getElementById("ask");
if (form) {
  const question = form.querySelector(".question"), price = document.getElementById("price");
  const result = document.getElementById("result");
  const entered = () => {
    const data = new FormData(form);
    data.delete("key");
    return new URLSearchParams(data).toString();
  };
  const show = (place, words, attributes = {}) => {
    const line = document.createElement("p");
    line.textContent = words;
    for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, value);
    place.replaceChildren(...(words ? [line] : []));
  };
  const say = (words) => {
    if (!price) return;
    show(price, words, { class: "help" });
    price.removeAttribute("aria-busy");
  };
  let asked = null, priced = null, focused = null;
  question?.addEventListener("input", () => { price.setAttribute("aria-busy", "true"); });
  price?.addEventListener("htmx:afterSwap", () => { if (entered() === priced) price.removeAttribute("aria-busy"); });
  form.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target === form) {
      if (question) htmx.trigger(question, "htmx:abort");
      asked = entered();
      focused = document.activeElement; // a button that is disabled meanwhile loses it
      say("Asking …");
    } else if (event.target === question && entered() === asked) {
      event.preventDefault();
      price.removeAttribute("aria-busy");
    } else if (event.target === question) {
      asked = null;
      priced = entered();
      price.setAttribute("aria-busy", "true");
    }
  });
  form.addEventListener("htmx:sendError", (event) => {
    if (event.target === question) say("There is no price: the server cannot be reached.");
  });
  form.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.target !== result) return;
    if (event.target === form && document.activeElement === document.body) focused?.focus();
    if (event.detail.xhr.status === 0) {
      const unknown = "The server cannot be reached. Ask again when it can: what was answered meanwhile is free.";
      show(result, unknown, { class: "problem card", role: "alert" });
    }
    if (!event.detail.successful) say("");
    else if (event.target === form && asked !== null) say("Answered below.");
    result.scrollIntoView({ block: "nearest" }); // on a phone it is below the edge
  });
}
