// Images for the next question: dropped, pasted or chosen. They are shown below the input until they are sent as data:
// URLs with the question.
const kImageTypes = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const kMaxImages = 16;            // maximum number of images in a question
const kMaxImageBytes = 20 << 20;  // bytes of a file
const attached = [];              // data: URLs of the attached images

// Returns the content for the API: the text with its images.
const contentOf = (text, images) => !images.length ? text
  : [...images.map((url) => ({type: "image_url", image_url: {url}})), ...(text ? [{type: "text", text}] : [])];

const isImage = (url) => typeof url === "string" && kImageTypes.some((type) => url.startsWith(`data:${type};base64,`));

// Makes a thumbnail. `alt` distinguishes several images.
const thumbnail = (url, alt) => make("img", {class: "thumbnail", src: url, alt});

function tellImages(words) {
  const note = byId("image-note");
  setText(note, words);
  note.hidden = !words;
}

function showAttached() {
  byId("attached").replaceChildren(...attached.map((url, i) => make("div", {class: "attachment"}, thumbnail(url, `Image ${i + 1}`),
    iconButton("remove", `Remove image ${i + 1}`, () => {
      attached.splice(i, 1);
      tellImages("");
      showAttached();
      byId("input").focus();
    }))));
  fitInput();
}

function takeAttached() {
  const taken = attached.splice(0);
  tellImages("");
  showAttached();
  return taken;
}

const readAsDataUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => resolve(reader.result));
  reader.addEventListener("error", () => reject(reader.error));
  reader.readAsDataURL(file);
});

async function attach(files) {
  const refused = [];
  for (const file of files) {
    if (!chat.images) refused.push("this model reads no images");
    else if (!kImageTypes.includes(file.type)) refused.push(`${file.name} is not taken; PNG, JPEG, WebP, GIF and BMP are`);
    else if (file.size > kMaxImageBytes) refused.push(`${file.name} has ${bytesText(file.size)}; up to ${bytesText(kMaxImageBytes)} are taken`);
    else if (attached.length >= kMaxImages) refused.push(`a question has up to ${kMaxImages} images`);
    else {
      try {
        attached.push(await readAsDataUrl(file));
      } catch (error) {
        refused.push(`${file.name} cannot be read (${error.message})`);
      }
    }
  }
  const [first, ...more] = new Set(refused);
  tellImages(first ? `Not attached: ${[first, ...more].join("; ")}.` : "");
  showAttached();
}

function startImages() {
  const files = (transfer) => [...transfer?.files || []];
  byId("attach").addEventListener("click", () => byId("image-files").click());
  byId("image-files").addEventListener("change", async (event) => {
    await attach(files(event.target));
    event.target.value = "";
  });
  byId("input").addEventListener("paste", (event) => {
    if (!files(event.clipboardData).length || event.clipboardData.getData("text/plain")) return;
    event.preventDefault();
    attach(files(event.clipboardData));
  });
  const place = byId("chat");
  const over = (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();  // otherwise the browser leaves the page to open the file
    place.classList.toggle("dropping", event.type !== "drop" && chat.images);
    if (event.type === "drop") attach(files(event.dataTransfer));
  };
  place.addEventListener("dragover", over);
  place.addEventListener("drop", over);
  place.addEventListener("dragleave", (event) => {
    if (!place.contains(event.relatedTarget)) place.classList.remove("dropping");
  });
}
