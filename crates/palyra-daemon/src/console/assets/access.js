// Access: sessions, passkeys, tokens, members; and adding a passkey.

import { content, failed, make, run, say } from "./page.js";
import { add } from "./passkey.js";
import { Refusal } from "./session.js";
import { news, show as table } from "./listing.js";

async function show() {
  await table();
  const button = make("button", "Add a passkey", { type: "button" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await add();
      say("The passkey is added.", "", "good");
      await show();
    } catch (error) {
      if (error instanceof Refusal) await failed(error);
      else say("No passkey was added.", error.message, "warn");
    }
    button.disabled = false;
  });
  const title = [...content().querySelectorAll("h2")].find((one) => one.textContent === "Your passkeys");
  title?.parentElement.append(button);
}

run(show, (event, again) => !event.connected && news(event, again && content().dataset.told));
