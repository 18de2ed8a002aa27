// The server's API: JSON requests, server-sent events, errors in OpenAI's form.
class ApiFailure extends Error {
  constructor(status, error) {
    super(error.message || `The server answered with status ${status}.`);
    this.status = status;
    this.detail = [error.type, error.param && `param ${error.param}`, error.code].filter(Boolean).join(" · ");
  }
}

function authorized(headers) {
  const key = byId("api-key").value.trim();
  return key ? {...headers, Authorization: `Bearer ${key}`} : headers;
}

async function checked(response) {
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // No JSON: the status says what there is to say.
  }
  throw new ApiFailure(response.status, error);
}

async function getJson(path) {
  return (await checked(await fetch(path, {headers: authorized({}), cache: "no-store"}))).json();
}

// Yields the JSON of each event until "[DONE]" or the end.
async function* postEvents(path, body, signal) {
  const response = await checked(await fetch(path, {
    method: "POST", headers: authorized({"Content-Type": "application/json"}), body: JSON.stringify(body), signal,
  }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      rest += done ? "\n\n" : value;
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n").trim();
        if (data === "[DONE]") return;
        if (!data) continue;
        const json = JSON.parse(data);
        if (json.error) throw new ApiFailure(500, json.error);
        yield json;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});  // an aborted one cannot be
  }
}
