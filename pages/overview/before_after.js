// The picture is SVG of our own making (svg_figure.py, its words escaped): the page puts it in.

export default function ({ data, parentElement }) {
  parentElement.querySelector(".ways").innerHTML = data.svg;
}
