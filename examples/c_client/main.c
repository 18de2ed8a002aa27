/* Talks to a model in C: c_client MODEL_FOLDER PROMPT [MAX_NEW_TOKENS]
 * Streams the answer to one request to a callback. Then sends a second request and waits for its whole answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera.h>

static int failed(const char* what, tessera_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, tessera_error_message(error), tessera_code_name(tessera_error_code(error)));
  tessera_error_free(error);
  return 1;
}

/* Returns the text as a JSON string, with quotes, backslashes and control characters escaped. The caller frees it. */
static char* quoted(const char* text) {
  char* out = malloc(6 * strlen(text) + 3);
  char* to = out;
  if (out == NULL) return NULL;
  *to++ = '"';
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20) {
      to += sprintf(to, "\\u%04x", (unsigned)(unsigned char)*text);
    } else {
      *to++ = *text;
    }
  }
  *to++ = '"';
  *to = '\0';
  return out;
}

/* The number of chunks of an answer, and whether there was an error. on_event() sets both on the engine's thread. */
struct progress {
  int chunks;
  int error;
};
static int on_event(void* user, const tessera_event* event) {
  struct progress* progress = user;
  if (event->kind == TESSERA_EVENT_CHUNK) ++progress->chunks;
  if (event->kind == TESSERA_EVENT_ERROR) {
    progress->error = 1;
    fprintf(stderr, "%s\n", event->json);
  }
  return 0;
}

static int run(tessera_engine* engine, const char* prompt, long max_new_tokens) {
  tessera_error* error = NULL;
  char* text = quoted(prompt);
  size_t size = text == NULL ? 0 : strlen(text) + 200;
  char* body = malloc(size);
  int result = 1;
  if (text == NULL || body == NULL) {
    fprintf(stderr, "out of memory\n");
    goto done;
  }

  /* Streams an answer to a callback. */
  snprintf(body, size,
           "{\"text\": %s, \"stream\": true, \"sampling_params\": {\"max_new_tokens\": %ld, \"temperature\": 0, "
           "\"ignore_eos\": true}}",
           text, max_new_tokens);
  struct progress progress = {0, 0};
  tessera_submission submission = {
      .size = sizeof submission, .path = "/generate", .body = body, .on_event = on_event, .user = &progress};
  tessera_request* request = NULL;
  if (tessera_submit(engine, &submission, &request, &error) != TESSERA_OK) {
    result = failed("submit", error);
    goto done;
  }
  tessera_request_wait(request, -1, NULL);
  tessera_request_free(request);
  if (progress.error) goto done;
  printf("%d chunks\n", progress.chunks);

  /* Waits for a whole answer. */
  snprintf(body, size, "{\"text\": %s, \"sampling_params\": {\"max_new_tokens\": %ld, \"temperature\": 0}}", text,
           max_new_tokens);
  char* answer = NULL;
  if (tessera_ask(engine, "/generate", body, &answer, &error) != TESSERA_OK) {
    result = failed("ask", error);
    goto done;
  }
  printf("%s\n", answer);
  tessera_free(answer);
  result = 0;
done:
  free(body);
  free(text);
  return result;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: c_client MODEL_FOLDER PROMPT [MAX_NEW_TOKENS]\n");
    return 2;
  }
  if (tessera_api_version() < TESSERA_API_VERSION) {
    fprintf(stderr, "the library is older than this program: %u, needed is %u\n", tessera_api_version(),
            (unsigned)TESSERA_API_VERSION);
    return 1;
  }
  char* path = quoted(argv[1]);
  size_t size = path == NULL ? 0 : strlen(path) + 100;
  char* options = malloc(size);
  if (path == NULL || options == NULL) return 1;
  snprintf(options, size, "{\"model-path\": %s}", path);
  tessera_engine* engine = NULL;
  tessera_error* error = NULL;
  tessera_code code = tessera_open(options, &engine, &error);
  free(options);
  free(path);
  if (code != TESSERA_OK) return failed("open", error);
  int result = run(engine, argv[2], argc > 3 ? atol(argv[3]) : 40);
  tessera_close(engine, NULL);
  return result;
}
