/* The C interface of Tessera's engine.
 *
 *   tessera_engine* engine = NULL;
 *   tessera_error* error = NULL;
 *   if (tessera_open("{\"model-path\": \"models/demo\"}", &engine, &error) != TESSERA_OK)
 *     ... tessera_error_message(error)
 *   char* answer = NULL;
 *   tessera_ask(engine, "/generate", "{\"text\": \"Once upon a time\"}", &answer, &error);
 *   tessera_free(answer);
 *   tessera_close(engine, NULL);
 *
 * Link with -ltessera (pkg-config tessera; CMake: find_package(tessera), tessera::c). docs/embedding-api.md is the
 * guide.
 *
 * ABI. A symbol never changes its meaning, and a struct only grows at its end. The caller sets `size` to its own
 * sizeof, and the library reads and writes no byte beyond that. A field that the caller's struct lacks counts as
 * zero. tessera_api_version() returns the library's version. A program runs with every library whose version is at
 * least the TESSERA_API_VERSION with which the program was compiled.
 *
 * Errors. A function that can fail returns a tessera_code. If it is not TESSERA_OK and `error` is not NULL, *error
 * is set to an object that the caller owns (tessera_error_free); otherwise *error does not change. Outputs are
 * written only with TESSERA_OK. For a required pointer that is NULL the code is TESSERA_INVALID_ARGUMENT. No
 * exception leaves the library.
 *
 * Texts are UTF-8 and end with a NUL byte. The caller owns the texts that it gets as char** and frees them with
 * tessera_free.
 *
 * Threads. Several threads may call any functions at once, also with the same handle. The exceptions are
 * tessera_close and tessera_request_free: once one of them has begun, no other call may use its handle. Each engine
 * runs forwards on its own thread; engines of one process are independent. A process that is forked after its
 * parent opened an engine cannot use or close this engine, nor open another: the engine's threads exist in the parent
 * alone. Functions that need these threads return TESSERA_FAILED_PRECONDITION. */
#ifndef TESSERA_H
#define TESSERA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_API_VERSION 2

typedef struct tessera_engine tessera_engine;   /* a loaded model */
typedef struct tessera_request tessera_request; /* a submitted request and its events */
typedef struct tessera_error tessera_error;

/* The numbers never change; a later version may add some. */
typedef enum tessera_code {
  TESSERA_OK = 0,
  TESSERA_INVALID_ARGUMENT = 1,    /* a pointer, an option or a field of a request is wrong */
  TESSERA_NOT_FOUND = 2,           /* there is no such file or model */
  TESSERA_FAILED_PRECONDITION = 3, /* the call is right, but not at this time */
  TESSERA_RESOURCE_EXHAUSTED = 4,  /* memory or room in the queue is lacking: a smaller or later request may work */
  TESSERA_UNIMPLEMENTED = 5,       /* valid, but not supported by this engine or this model */
  TESSERA_DEVICE_LOST = 6,         /* the process must be restarted */
  TESSERA_DATA_LOSS = 7,           /* a file is corrupt */
  TESSERA_CANCELLED = 8,           /* by tessera_request_cancel, a callback, tessera_close or the body's timeout_s */
  TESSERA_INTERNAL = 9,            /* a defect of the library */
  TESSERA_TIMEOUT = 10             /* the given time is over; the work that was waited for goes on */
} tessera_code;

/* ---- Library and errors ---- */

uint32_t tessera_api_version(void);      /* returns the TESSERA_API_VERSION with which the library was built */
const char* tessera_version(void);       /* "0.1.0"; static */
const char* tessera_code_name(int code); /* "invalid argument"; static, "unknown" for other numbers */

/* Return the error's code and message, which live as long as the error. For NULL they are TESSERA_OK and "". The
 * message says what is wrong, with which value, and what is accepted. */
tessera_code tessera_error_code(const tessera_error* error);
const char* tessera_error_message(const tessera_error* error);
/* Returns the field of the request's body that is at fault, such as "sampling_params.top_p"; "" if there is none. */
const char* tessera_error_field(const tessera_error* error);
void tessera_error_free(tessera_error* error); /* does nothing for NULL */
void tessera_free(void* memory);               /* frees a text or ids from a function; does nothing for NULL */

/* ---- Engines ---- */

/* Loads a model and captures its graphs, which takes seconds to minutes. `options` is a JSON object (or YAML) with the
 * keys of `tessera serve --config`, except those for HTTP: {"model-path": "models/demo", "page_size": 16}. "model-path"
 * is a folder, or an id of the Hugging Face hub in its local cache; "download": true downloads what the cache lacks.
 * HF_HOME, HF_TOKEN, TESSERA_CACHE_DIR and similar environment variables have the same effect as for the program.
 * "log-level" applies to the whole process. If the options have "plugin", this function forks the process to try each
 * plugin, so call it before other threads of the process are busy. */
tessera_code tessera_open(const char* options, tessera_engine** engine, tessera_error** error);

/* Ends the engine. Running requests end with TESSERA_CANCELLED; their handles stay valid and must still be freed.
 * Returns when the engine's thread has ended. Within a callback the call is refused, and the engine stays open. Does
 * nothing for NULL. */
tessera_code tessera_close(tessera_engine* engine, tessera_error** error);

/* Returns TESSERA_OK, or the error that ended the engine's service, such as a lost device. */
tessera_code tessera_health(tessera_engine* engine, tessera_error** error);

/* Describes the engine that these options would open, as `tessera explain --format json` does: pieces, split operators,
 * sizes, rules and memory. Loads no weights: reads config.json, and the headers of the weight files if there are
 * any. */
tessera_code tessera_explain(const char* options, char** json, tessera_error** error);
/* Describes an engine and its work as JSON: "model" (as in GET /get_model_info) and "engine" (options, plan, notes,
 * forwards by reason and size, requests, cache and memory, as in GET /get_server_info). Waits for the running step. It
 * must not be called from a callback. */
tessera_code tessera_info(tessera_engine* engine, char** json, tessera_error** error);
/* Returns counters and gauges as of the last step, as JSON: "requests" {"running", "queued", "preemptions"}, "tokens"
 * {"prompt", "cached", "output"}, "steps", "forwards", "cache". Does not wait. */
tessera_code tessera_metrics(tessera_engine* engine, char** json, tessera_error** error);

/* ---- Texts and tokens ---- */

/* Converts a text to token ids. `text_size` is the text's size in bytes, so that the text may contain NUL bytes. If
 * `text_size` is SIZE_MAX, the text ends at its first NUL byte. If `special` is not 0, adds the tokens with which the
 * model's prompts begin or end. The caller owns *ids, which may be NULL if *count is 0. */
tessera_code tessera_tokenize(tessera_engine* engine, const char* text, size_t text_size, int special, int32_t** ids,
                              size_t* count, tessera_error** error);
/* Converts token ids to a text. If `skip_special` is not 0, leaves out special tokens. *text_size becomes the text's
 * size in bytes, without the NUL byte at its end; `text_size` may be NULL. */
tessera_code tessera_detokenize(tessera_engine* engine, const int32_t* ids, size_t count, int skip_special, char** text,
                                size_t* text_size, tessera_error** error);
/* Returns the prompt that the model's chat template makes of a chat request's body: {"messages": [...], "tools":
 * [...], "add_generation_prompt": true, "chat_template_kwargs": {...}}. The prompt contains all special tokens that
 * it needs. */
tessera_code tessera_apply_chat_template(tessera_engine* engine, const char* body, char** prompt,
                                         tessera_error** error);

/* ---- Requests ---- */

/* A request has a path and a body, as an HTTP request to the server has. Its answer is the body that the server would
 * send:
 *   /generate             SGLang's API: texts or ids, sampling_params, return_logprob, ...
 *   /v1/completions, /v1/chat/completions, /v1/embeddings, /v1/rerank, /v1/score      OpenAI's API, and similar ones
 * docs/serving.md has every field. With "stream": true the answer comes piece by piece. */

typedef enum tessera_event_kind {
  TESSERA_EVENT_CHUNK = 1, /* one JSON object of a stream */
  TESSERA_EVENT_END = 2,   /* the last event: the whole answer, or "" if it was streamed */
  TESSERA_EVENT_ERROR = 3  /* the last event: `code` is the reason, `json` is {"error": {"message", "type", ...}} */
} tessera_event_kind;

typedef struct tessera_event {
  size_t size;      /* set by the caller, and by the library for a callback */
  int32_t kind;     /* a tessera_event_kind */
  int32_t code;     /* a tessera_code; TESSERA_OK unless kind is TESSERA_EVENT_ERROR */
  const char* json; /* NUL-terminated, never NULL */
  size_t json_size; /* bytes, without the NUL */
} tessera_event;

/* A callback for events. The engine's thread calls it for each event in turn. One exception is the last event of a
 * request that tessera_close ends: it comes on the thread that closes the engine. The event and its text are valid
 * until the callback returns. All forwards of the engine wait meanwhile, so a callback should take microseconds: pass
 * the text to a thread of your own. The callback may call any function that does not wait. Functions that wait
 * (tessera_close, tessera_info, tessera_ask, tessera_request_next, tessera_request_wait and the functions of adapters,
 * of any engine) are refused with TESSERA_FAILED_PRECONDITION. tessera_request_free may free other requests of this
 * engine. It must not free the callback's own request. It must not free a request of another engine either, because it
 * would not wait for that request's callback. A result other than 0 cancels the request, and an error event follows. No
 * exception may leave the callback. */
typedef int (*tessera_on_event)(void* user, const tessera_event* event);

typedef struct tessera_submission {
  size_t size;               /* sizeof(tessera_submission) */
  const char* path;          /* "/generate" */
  const char* body;          /* JSON */
  size_t body_size;          /* bytes; 0: the body ends at its NUL */
  tessera_on_event on_event; /* NULL: events wait for tessera_request_next */
  void* user;                /* for on_event */
} tessera_submission;

/* Reads and tokenises the body on the calling thread, then gives the request to the engine. If the body is wrong, this
 * function returns the error, and no event follows. Copies its arguments. on_event may be called before this function
 * returns. */
tessera_code tessera_submit(tessera_engine* engine, const tessera_submission* submission, tessera_request** request,
                            tessera_error** error);

/* Takes the next event, in order. If timeout_ms is 0, does not wait; if it is negative, waits without a limit. Returns
 * TESSERA_TIMEOUT if no event came. event->json belongs to the request, and is valid until the next call of this
 * function for the request or tessera_request_free. Returns TESSERA_FAILED_PRECONDITION after the last event, or if the
 * request has a callback. Only one thread at a time may wait for a request. */
tessera_code tessera_request_next(tessera_request* request, int64_t timeout_ms, tessera_event* event,
                                  tessera_error** error);
/* Waits for the last event without taking any event. If the request has a callback, the callback has returned by then.
 * Returns TESSERA_OK or TESSERA_TIMEOUT. It must not be called from a callback. */
tessera_code tessera_request_wait(tessera_request* request, int64_t timeout_ms, tessera_error** error);
/* Ends the request with an error event, TESSERA_CANCELLED. Has no effect on a request that has ended. Returns at
 * once. */
void tessera_request_cancel(tessera_request* request);
/* Frees a request; cancels it first if it has not ended. Waits for a running callback. After the return, no callback is
 * called any more. Within a callback: see tessera_on_event. Does nothing for NULL. */
void tessera_request_free(tessera_request* request);

/* Submits a request that is not streamed, waits, and returns the whole answer. */
tessera_code tessera_ask(tessera_engine* engine, const char* path, const char* body, char** answer,
                         tessera_error** error);

/* ---- Adapters ---- */

/* Low-rank adapters (LoRA) of an engine that was opened with "enable-lora" or "lora-paths" (docs/lora.md). A request
 * names a loaded adapter in "lora_path", or in "model". Requests go on while adapters are loaded and unloaded. None of
 * these functions may be called from a callback. Since TESSERA_API_VERSION 2. */

/* Loads an adapter from a folder that PEFT has written. `body` is that of the server's POST /v1/load_lora_adapter:
 * {"lora_name": "sql", "lora_path": "adapters/sql", "pinned": false, "load_inplace": false}. "pinned" keeps the adapter
 * on the device once a request has used it. "load_inplace" replaces a loaded adapter of the same name: requests that
 * use the old one finish with it. Reads the folder on the calling thread, and returns when requests can name the
 * adapter. After an error the loaded adapters are what they were before; the error's field is the member of the body
 * that is wrong. */
tessera_code tessera_lora_load(tessera_engine* engine, const char* body, tessera_error** error);
/* Unloads an adapter. Returns when no new request can name it; waits only for the running step. Requests that use the
 * adapter finish with it. Returns TESSERA_NOT_FOUND if no adapter of this name is loaded. */
tessera_code tessera_lora_unload(tessera_engine* engine, const char* name, tessera_error** error);
/* Waits until no request uses an adapter that was unloaded under this name. If timeout_ms is 0, does not wait; if it is
 * negative, waits without a limit. Returns TESSERA_TIMEOUT if requests still use the adapter. Returns TESSERA_OK at
 * once for a name that was never unloaded, also if an adapter of this name is loaded. Does not wait for requests that
 * use an adapter which "load_inplace" has replaced. */
tessera_code tessera_lora_wait(tessera_engine* engine, const char* name, int64_t timeout_ms, tessera_error** error);
/* Lists the loaded adapters, sorted by name, as JSON: [{"lora_name", "lora_path", "rank", "pinned", "running",
 * "on_device"}]. "rank" is the largest rank of the adapter's modules; 0 if the adapter has only whole matrices.
 * "running" is the number of running requests that use the adapter; a request that waits for the adapter to get a place
 * on the device does not count. "on_device" says whether the adapter has such a place. The list is empty for an engine
 * without adapters. Waits for the running step. */
tessera_code tessera_lora_list(tessera_engine* engine, char** json, tessera_error** error);

/* ---- The program ---- */

/* Does what the command `tessera` does with these words, the first of which is the program's name; returns the exit
 * code. Call it in a process of its own: it writes to the terminal, takes signals, and overwrites secrets in argv. */
int tessera_main(int argc, char** argv);

#ifdef __cplusplus
}
#endif

#endif /* TESSERA_H */
