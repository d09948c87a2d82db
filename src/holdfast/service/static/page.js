// Sliders on a logarithmic scale that follow, and are followed by, the number beside them.
for (const slider of document.querySelectorAll("input.log")) {
  const field = document.getElementById(slider.dataset.for);
  const least = Math.log(slider.dataset.least), most = Math.log(slider.dataset.most);
  const follow = () => {
    const value = Number(field.value);
    if (value > 0) slider.value = 1000 * (Math.log(value) - least) / (most - least);
  };
  slider.addEventListener("input", () => {
    const value = Math.exp(least + (most - least) * slider.value / 1000);
    field.value = value < 1 ? value.toPrecision(2) : Number(value.toPrecision(2)).toFixed(0);
  });
  field.addEventListener("input", follow);
  follow();
  slider.hidden = false;
}
