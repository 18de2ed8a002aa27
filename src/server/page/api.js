// Accesses the server's API: JSON requests, server-sent events, errors in OpenAI's form.
class ApiFailure extends Error {
  constructor(status, error) {
    super(error.message || `The server answered with status ${status}.`);
    this.status = status;
    this.detail = [error.type, error.param && `param ${error.param}`, error.code].filter(Boolean).join(" · ");
  }
}

function authorized(headers) {
  const key = settings.apiKey;
  return key ? {...headers, Authorization: `Bearer ${key}`} : headers;
}

async function checked(response) {
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // If the body is not JSON, only the status explains the error.
  }
  throw new ApiFailure(response.status, error);
}

async function getJson(path) {
  return (await checked(await fetch(path, {headers: authorized({}), cache: "no-store"}))).json();
}

// Returns the data of one server-sent event.
function eventData(event) {
  return event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n").trim();
}

function parsedEvent(data) {
  let json;
  try {
    json = JSON.parse(data);
  } catch {
    throw new ApiFailure(502, {message: `The server sent an event that is no JSON: ${data.slice(0, 80)}`});
  }
  if (json.error) throw new ApiFailure(500, json.error);
  return json;
}

// Yields {json, at} for each event until "[DONE]"; `at` is the arrival time of its bytes in ms. Throws an ApiFailure if
// the server refuses, sends an error, or ends before "[DONE]".
async function* postEvents(path, body, signal) {
  const response = await checked(await fetch(path, {
    method: "POST", headers: authorized({"Content-Type": "application/json"}), body: JSON.stringify(body), signal,
  }));
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      const at = performance.now();
      rest += done ? "\n\n" : decoder.decode(value, {stream: true});
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = eventData(event);
        if (data === "[DONE]") return;
        if (data) yield {json: parsedEvent(data), at};
      }
      if (done) throw new ApiFailure(502, {message: "The answer broke off: the connection ended before the server was done."});
    }
  } finally {
    reader.cancel().catch(() => {});  // an aborted reader cannot be cancelled
  }
}
