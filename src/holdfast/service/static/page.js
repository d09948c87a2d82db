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
