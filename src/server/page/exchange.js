// A question, its answer, and the actions on them. If the model has no chat template, the "question" is the text that
// the answer continues, and both are shown as one text.
class Exchange {
  // `answered`: a stored answer's {content, reasoning}, or null. `images`: data: URLs.
  constructor(question, completes, answered, images = []) {
    this.question = question;
    this.images = images;
    this.completes = completes;
    this.node = make("section", {class: "exchange"});
    if (answered) this.show(new Answer(completes ? question : null, answered));
    else this.showQuestion();
  }

  // Returns the messages for the API, without reasoning; none if there is no answer.
  messages() {
    return this.answer?.content ? this.kept().map(({role, content, images = []}) => ({role, content: contentOf(content, images)})) : [];
  }
  kept() {
    const {content, reasoning} = this.answer || {};
    return [{role: "user", content: this.question, ...(this.images.length ? {images: this.images} : {})},
      ...(content ? [{role: "assistant", content, ...(reasoning ? {reasoning_content: reasoning} : {})}] : [])];
  }

  showQuestion() {
    this.actions = make("div", {class: "actions"}, ...this.changes());
    this.asked = this.completes ? null
      : make("article", {class: "turn user", "aria-label": "You"}, this.shownImages(), this.question ? make("div", {class: "said"}, this.question) : null, this.actions);
    this.node.replaceChildren(...(this.asked ? [this.asked] : []));
  }
  shownImages() {
    return !this.images.length ? null
      : make("div", {class: "thumbnails"}, ...this.images.map((url, i) => thumbnail(url, `Image ${i + 1} of your message`)));
  }
  changes() {
    return [iconButton("edit", "Edit", () => this.edit()),
      iconButton("remove", "Delete question and answer", () => removeExchange(this))];
  }

  // Shows a new answer or a stored one.
  show(answer) {
    this.answer = answer;
    this.showQuestion();
    this.node.append(answer.node);
    if (answer.ended) this.addActions();
  }

  addActions() {
    const {answer} = this;
    const copy = iconButton("copy", "Copy answer", async () => {
      const tell = (words, done) => {
        for (const name of ["aria-label", "title"]) copy.setAttribute(name, words);
        copy.classList.toggle("done", done);
      };
      const done = await copied(answer.content);
      tell(done ? "Copied" : "The browser does not allow it", done);
      setTimeout(() => tell("Copy answer", false), 1500);
    });
    const again = iconButton("again", "Answer again", () => answerAgain(this));
    again.classList.add("again");
    answer.foot.prepend(make("div", {class: "actions"}, ...(answer.content ? [copy] : []), again,
      ...(answer.tokens.length ? [this.chancesButton()] : []), ...(this.completes ? this.changes() : [])));
  }

  // Makes the button that switches between the answer's text and its token probabilities.
  chancesButton() {
    const {answer} = this;
    let view = null;
    const button = iconButton("chances", "Show probabilities", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      view ??= new TokenView(answer.tokens).node;
      button.setAttribute("aria-pressed", shown);
      answer.said.hidden = shown;
      if (shown) answer.said.after(view);
      else view.remove();
    });
    button.setAttribute("aria-pressed", "false");
    return button;
  }

  // Turns the question into an edit field. Sending it replaces the question and removes everything after it.
  edit() {
    if (chat.running || this.form) return;
    const area = make("textarea", {"aria-label": "Edit your message", rows: "3"});
    area.value = this.question;
    const later = exchangesAfter(this).length;
    const told = later === 0 ? "Sending asks for a new answer."
      : later === 1 ? "Sending takes away the question after it, with its answer."
      : `Sending takes away the ${later} questions after it, with their answers.`;
    const leave = () => {
      this.form.replaceWith(...(this.asked ? [this.asked] : []));
      this.form = null;
      (this.asked || this.node).querySelector("[aria-label=Edit]")?.focus();
    };
    this.form = make("form", {class: "edit"}, area,
      make("p", {class: "note"}, told),
      make("div", {class: "choices"},
        make("button", {class: "plain", type: "button", onclick: leave}, "Cancel"),
        make("button", {class: "main", type: "submit"}, "Send")));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = area.value.trim();
      if (!text && !this.images.length) return;
      this.form = null;
      this.question = text;
      answerAgain(this);
    });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        leave();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    if (this.asked) this.asked.replaceWith(this.form);
    else this.node.prepend(this.form);
    area.focus();
  }
}
