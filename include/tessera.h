/* Tessera's engine from outside, in C.
 *
 *   tessera_engine* engine = NULL;
 *   tessera_error* error = NULL;
 *   if (tessera_open("{\"model-path\": \"models/demo\"}", &engine, &error) != TESSERA_OK) ... tessera_error_message(error)
 *   char* answer = NULL;
 *   tessera_ask(engine, "/generate", "{\"text\": \"Once upon a time\"}", &answer, &error);
 *   tessera_free(answer);
 *   tessera_close(engine);
 *
 * Link with -ltessera (pkg-config tessera; CMake: find_package(tessera), tessera::c). docs/embedding-api.md is the guide.
 *
 * ABI. A symbol never changes its meaning, and a struct only grows at its end: the caller sets `size` to its own
 * sizeof, and the library reads and writes no byte beyond it. A field that the caller's struct lacks counts as zero.
 * tessera_api_version() tells what the library has; a program that was compiled with a TESSERA_API_VERSION runs with
 * every library whose number is the same or larger.
 *
 * Errors. A function that can fail returns a tessera_code. Where it is not TESSERA_OK and `error` is not NULL, *error is
 * set to an object that the caller owns (tessera_error_free); else *error is left as it is. Outputs are written on
 * TESSERA_OK alone. NULL for a pointer that is required is TESSERA_INVALID_ARGUMENT. No exception leaves the library.
 *
 * Texts are UTF-8 and end with a NUL byte. Those that the library hands out as char** are the caller's: tessera_free.
 *
 * Threads. Every function may be called from any thread, of several threads at once and on the same handle, but for
 * tessera_close and tessera_request_free, after whose beginning nobody else may use that handle. Each engine has a
 * thread of its own on which forwards run; engines of one process are independent. A process that has forked must not
 * use an engine of its parent. */
#ifndef TESSERA_H
#define TESSERA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_API_VERSION 1

typedef struct tessera_engine tessera_engine;   /* a model that is loaded */
typedef struct tessera_request tessera_request; /* what was submitted to an engine, and its events */
typedef struct tessera_error tessera_error;

/* Numbers stay; a later version may add some. */
typedef enum tessera_code {
  TESSERA_OK = 0,
  TESSERA_INVALID_ARGUMENT = 1,    /* a pointer, an option or a field of a request is wrong */
  TESSERA_NOT_FOUND = 2,           /* a file or a model */
  TESSERA_FAILED_PRECONDITION = 3, /* right call, wrong time */
  TESSERA_RESOURCE_EXHAUSTED = 4,  /* memory, or the queue's length: smaller or later may work */
  TESSERA_UNIMPLEMENTED = 5,       /* valid, and not supported by this engine or this model */
  TESSERA_DEVICE_LOST = 6,         /* the process must be started again */
  TESSERA_DATA_LOSS = 7,           /* a file is corrupt */
  TESSERA_CANCELLED = 8,           /* by tessera_request_cancel, a callback, tessera_close or the body's timeout_s */
  TESSERA_INTERNAL = 9,            /* a defect of the library */
  TESSERA_TIMEOUT = 10             /* nothing came in the given time; the request goes on */
} tessera_code;

/* ---- Library and errors ---- */

uint32_t tessera_api_version(void);  /* the TESSERA_API_VERSION that the library was built with */
const char* tessera_version(void);   /* "0.1.0"; static */
const char* tessera_code_name(int code); /* "invalid argument"; static, "unknown" for other numbers */

/* Both live as long as the error. Of NULL: TESSERA_OK and "". The message says what is wrong, with which value, and
 * what is accepted. */
tessera_code tessera_error_code(const tessera_error* error);
const char* tessera_error_message(const tessera_error* error);
/* The member of the request's body that is at fault, like "sampling_params.top_p"; "" where there is none. */
const char* tessera_error_field(const tessera_error* error);
void tessera_error_free(tessera_error* error); /* NULL: nothing */
void tessera_free(void* memory);               /* what was handed out as char** or int32_t**; NULL: nothing */

/* ---- Engines ---- */

/* Loads a model and captures its graphs; takes seconds to minutes. `options`: a JSON object (or YAML) with the keys of
 * `tessera serve --config`, but for those of HTTP: {"model-path": "models/demo", "page_size": 16}. "model-path" is a
 * folder, or an id of the Hugging Face hub in its local cache; "download": true fetches what the cache lacks. The
 * environment's HF_HOME, HF_TOKEN, TESSERA_CACHE_DIR and their like count as they do for the program. "log-level" is the
 * whole process's. Options with "plugin" fork the process to try each one: best before its other threads are busy. */
tessera_code tessera_open(const char* options, tessera_engine** engine, tessera_error** error);

/* Ends the engine. Requests under way end with TESSERA_CANCELLED; their handles stay valid and are freed as ever.
 * Returns when the engine's thread has ended: not from a callback, which is refused and leaves the engine open. NULL:
 * nothing. */
tessera_code tessera_close(tessera_engine* engine, tessera_error** error);

/* TESSERA_OK, or why the engine no longer serves (a lost device). */
tessera_code tessera_health(tessera_engine* engine, tessera_error** error);

/* What these options would run: pieces, split operators, sizes, rules and memory as `tessera explain --format json` has
 * them. Reads config.json alone. */
tessera_code tessera_explain(const char* options, char** json, tessera_error** error);
/* What an engine is and did, as JSON: "model" (as GET /get_model_info), "engine" (options, plan, notes, forwards by
 * reason and size, requests, cache and memory, as GET /get_server_info). Waits for the step that runs. Not from a
 * callback. */
tessera_code tessera_info(tessera_engine* engine, char** json, tessera_error** error);
/* Counters and gauges as of the last step, as JSON: "requests" {"running", "queued", "preemptions"}, "tokens"
 * {"prompt", "cached", "output"}, "steps", "forwards", "cache". Waits for nothing. */
tessera_code tessera_metrics(tessera_engine* engine, char** json, tessera_error** error);

/* ---- Texts and tokens ---- */

/* `text_size`: bytes of text, which may hold NUL bytes then; SIZE_MAX: up to its NUL. `special`: not 0 adds the tokens
 * that the model's prompts begin or end with. *ids is the caller's, and may be NULL where *count is 0. */
tessera_code tessera_tokenize(tessera_engine* engine, const char* text, size_t text_size, int special, int32_t** ids,
                              size_t* count, tessera_error** error);
/* `skip_special`: not 0 leaves special tokens out. *text_size may be NULL. */
tessera_code tessera_detokenize(tessera_engine* engine, const int32_t* ids, size_t count, int skip_special, char** text,
                                size_t* text_size, tessera_error** error);
/* The prompt that the model's chat template makes of the body of a chat request: {"messages": [...], "tools": [...],
 * "add_generation_prompt": true, "chat_template_kwargs": {...}}. It has all special tokens that it needs. */
tessera_code tessera_apply_chat_template(tessera_engine* engine, const char* body, char** prompt,
                                         tessera_error** error);

/* ---- Requests ---- */

/* A request is a path of the server and its body, and its answer is what the server would send:
 *   /generate             SGLang's: texts or ids, sampling_params, return_logprob, ...
 *   /v1/completions, /v1/chat/completions, /v1/embeddings, /v1/rerank, /v1/score      OpenAI's and their like
 * docs/serving.md has every field. With "stream": true the answer comes piece by piece. */

typedef enum tessera_event_kind {
  TESSERA_EVENT_CHUNK = 1, /* of a stream: one of its JSON objects */
  TESSERA_EVENT_END = 2,   /* the last event: the whole answer, or "" of a stream */
  TESSERA_EVENT_ERROR = 3  /* the last event: `code` says why, `json` is {"error": {"message", "type", ...}} */
} tessera_event_kind;

typedef struct tessera_event {
  size_t size;      /* set by the caller, and by the library for a callback */
  int32_t kind;     /* a tessera_event_kind */
  int32_t code;     /* a tessera_code; TESSERA_OK unless kind is TESSERA_EVENT_ERROR */
  const char* json; /* NUL-terminated, never NULL */
  size_t json_size; /* bytes, without the NUL */
} tessera_event;

/* Called on the engine's thread for each event in turn, but for the last event of a request that tessera_close ends:
 * that one comes on the thread that closes. The event and its text are valid until it returns. All forwards of the
 * engine wait meanwhile, so it should take microseconds: hand the text to a thread of your own. It may call any
 * function but those that wait: tessera_close, tessera_info, tessera_ask, tessera_request_next and
 * tessera_request_wait, of any engine, are refused there with TESSERA_FAILED_PRECONDITION. tessera_request_free may
 * free other requests of this engine; neither the callback's own request nor another engine's, whose callback it would
 * not wait for. Not 0 cancels the request; an error event follows then. No exception may leave it. */
typedef int (*tessera_on_event)(void* user, const tessera_event* event);

typedef struct tessera_submission {
  size_t size;               /* sizeof(tessera_submission) */
  const char* path;          /* "/generate" */
  const char* body;          /* JSON */
  size_t body_size;          /* bytes; 0: up to the body's NUL */
  tessera_on_event on_event; /* NULL: events wait for tessera_request_next */
  void* user;                /* for on_event */
} tessera_submission;

/* Reads and tokenises the body on the calling thread, then hands the request to the engine. A body that is wrong is an
 * error here. Copies what it is given. on_event may be called before this returns. */
tessera_code tessera_submit(tessera_engine* engine, const tessera_submission* submission, tessera_request** request,
                            tessera_error** error);

/* The next event, in order. timeout_ms: 0 looks, a negative number waits without end. TESSERA_TIMEOUT without an event.
 * event->json is the request's, until the next call of this function on it or tessera_request_free. After the last event,
 * or with a callback: TESSERA_FAILED_PRECONDITION. One thread at a time waits on one request. */
tessera_code tessera_request_next(tessera_request* request, int64_t timeout_ms, tessera_event* event,
                                  tessera_error** error);
/* Waits for the last event without taking any, with or without a callback (which has returned then). TESSERA_OK, or
 * TESSERA_TIMEOUT. Not from a callback. */
tessera_code tessera_request_wait(tessera_request* request, int64_t timeout_ms, tessera_error** error);
/* The request ends with an error event, TESSERA_CANCELLED. One that has ended is left as it is. Returns at once. */
void tessera_request_cancel(tessera_request* request);
/* Cancels a request that has not ended, and frees it. A callback that runs is waited for; none is called after this has
 * returned. Within a callback: see tessera_on_event. NULL: nothing. */
void tessera_request_free(tessera_request* request);

/* submit and wait in one: the whole answer of a request that is no stream. */
tessera_code tessera_ask(tessera_engine* engine, const char* path, const char* body, char** answer,
                         tessera_error** error);

/* ---- The program ---- */

/* What the command `tessera` does with these words, the first of which is its name; returns its exit code. It is for a
 * process of its own: it writes to the terminal, takes signals, and overwrites secrets in argv. */
int tessera_main(int argc, char** argv);

#ifdef __cplusplus
}
#endif

#endif /* TESSERA_H */
