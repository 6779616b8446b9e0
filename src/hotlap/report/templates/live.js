"use strict";
const view = document.getElementById("view");
const lost = document.getElementById("lost");
const token = new URLSearchParams(location.search).get("token") || "";
let looks = 0;

async function look() {
  try {
    const answer = await fetch("/view", { headers: { Authorization: "Bearer " + token }, cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    view.replaceChildren(...page.body.childNodes);
    lost.hidden = true;
    document.documentElement.dataset.looks = String(++looks);
  } catch (error) {
    lost.hidden = false;
  }
  setTimeout(look, 1000);
}

setTimeout(look, 1000);
