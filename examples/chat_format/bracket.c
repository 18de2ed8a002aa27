/* A plugin with a chat format that writes reasoning and calls in double brackets.
 *
 *   [[why the user asks for the weather]]I look. [[call get_weather {"city": "Oslo"}]]
 *
 * Selected by --reasoning-parser bracket, --tool-call-parser bracket, or both. */
#include <stdlib.h>
#include <tessera_plugin.h>

TESSERA_PLUGIN("bracket", "1.0")

enum { kLongestName = 64 };

typedef enum { kText, kWhy, kName, kArguments, kEnd } parser_state;

typedef struct {
  const tessera_plugin_chat* chat;
  parser_state state;
  char held[kLongestName + 1]; /* the possible beginning of a mark, or a name */
  size_t num_held;
  int depth, in_string, escaped; /* position within the arguments */
} bracket_parser;

typedef struct {
  bracket_parser* parser;
  const tessera_plugin_pieces* pieces;
  tessera_plugin_error* error;
} output;

static int32_t give(const output* out, int32_t kind, const char* data, size_t bytes) {
  return out->pieces->add(out->pieces, kind, data, bytes, out->error);
}

static const char* opening_mark(const bracket_parser* parser) {
  return parser->chat->finds == TESSERA_PLUGIN_FINDS_CALLS ? "[[call " : "[[why ";
}

/* Holds back the possible beginning of `mark` and returns the rest as `kind`. Sets *found for a complete mark. */
static int32_t look_for(const output* out, const char* mark, int32_t kind, char c, int* found) {
  bracket_parser* p = out->parser;
  p->held[p->num_held++] = c;
  while (p->num_held > 0 && strncmp(p->held, mark, p->num_held) != 0) {
    const int32_t code = give(out, kind, p->held, 1);
    if (code != TESSERA_PLUGIN_OK) return code;
    memmove(p->held, p->held + 1, --p->num_held);
  }
  *found = p->num_held == strlen(mark);
  if (*found) p->num_held = 0;
  return TESSERA_PLUGIN_OK;
}

static int32_t take(const output* out, char c);

/* Handles a mark that begins no call: the mark becomes content, and the text behind it is read again. */
static int32_t refuse_name(const output* out) {
  bracket_parser* p = out->parser;
  char again[kLongestName + 1];
  const size_t bytes = p->num_held;
  memcpy(again, p->held, bytes);
  p->num_held = 0;
  p->state = kText;
  int32_t code = give(out, TESSERA_PLUGIN_CONTENT, opening_mark(p), strlen(opening_mark(p)));
  for (size_t i = 0; code == TESSERA_PLUGIN_OK && i < bytes; ++i) code = take(out, again[i]);
  return code;
}

static int32_t take_name(const output* out, char c) {
  bracket_parser* p = out->parser;
  p->held[p->num_held++] = c;
  const size_t name = p->num_held - 2; /* length of the name in bytes, once " {" follows it */
  if (c == '{' && p->num_held > 2 && p->held[name] == ' ' && p->chat->has_function(p->chat, p->held, name)) {
    p->num_held = 0;
    p->state = kArguments;
    const int32_t code = give(out, TESSERA_PLUGIN_CALL, p->held, name);
    return code != TESSERA_PLUGIN_OK ? code : take(out, c);
  }
  const int ends = c == '\n' || c == '[' || c == '{' || p->num_held == kLongestName;
  return ends ? refuse_name(out) : TESSERA_PLUGIN_OK;
}

/* The arguments end with the brace that closes the first one. */
static int32_t take_arguments(const output* out, char c) {
  bracket_parser* p = out->parser;
  if (p->in_string) {
    const int ends = c == '"' && !p->escaped;
    p->escaped = c == '\\' && !p->escaped;
    p->in_string = !ends;
  } else {
    p->in_string = c == '"';
    p->depth += (c == '{') - (c == '}');
  }
  if (p->depth == 0) p->state = kEnd;
  return give(out, TESSERA_PLUGIN_ARGUMENTS, &c, 1);
}

/* Expects "]]"; anything else is content. */
static int32_t take_end(const output* out, char c) {
  bracket_parser* p = out->parser;
  if (c == ']' && p->num_held == 0) {
    p->held[p->num_held++] = c;
    return TESSERA_PLUGIN_OK;
  }
  const size_t bytes = p->num_held;
  p->num_held = 0;
  p->state = kText;
  if (c == ']' && bytes == 1) return TESSERA_PLUGIN_OK;
  const int32_t code = give(out, TESSERA_PLUGIN_CONTENT, p->held, bytes);
  return code != TESSERA_PLUGIN_OK ? code : take(out, c);
}

static int32_t take(const output* out, char c) {
  bracket_parser* p = out->parser;
  int found = 0;
  int32_t code = TESSERA_PLUGIN_OK;
  switch (p->state) {
    case kText:
      code = look_for(out, opening_mark(p), TESSERA_PLUGIN_CONTENT, c, &found);
      if (found) p->state = p->chat->finds == TESSERA_PLUGIN_FINDS_CALLS ? kName : kWhy;
      return code;
    case kWhy:
      code = look_for(out, "]]", TESSERA_PLUGIN_REASONING, c, &found);
      break;
    case kName: return take_name(out, c);
    case kArguments: return take_arguments(out, c);
    case kEnd: return take_end(out, c);
  }
  if (found) p->state = kText;
  return code;
}

static int32_t begin(void* self, const tessera_plugin_chat* chat, void** parser, tessera_plugin_error* error) {
  (void)self;
  bracket_parser* made = calloc(1, sizeof(*made));
  if (made == NULL) return tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "out of memory");
  made->chat = chat;
  made->state = chat->reasoning ? kWhy : kText;
  *parser = made;
  return TESSERA_PLUGIN_OK;
}

static int32_t push(void* parser, const char* text, size_t bytes, const tessera_plugin_pieces* pieces,
                    tessera_plugin_error* error) {
  const output out = {parser, pieces, error};
  int32_t code = TESSERA_PLUGIN_OK;
  for (size_t i = 0; code == TESSERA_PLUGIN_OK && i < bytes; ++i) code = take(&out, text[i]);
  return code;
}

static int32_t finish(void* parser, const tessera_plugin_pieces* pieces, tessera_plugin_error* error) {
  bracket_parser* p = parser;
  const output out = {p, pieces, error};
  int32_t code = TESSERA_PLUGIN_OK;
  while (code == TESSERA_PLUGIN_OK && p->state == kName) code = refuse_name(&out); /* its end may begin another mark */
  if (code != TESSERA_PLUGIN_OK || p->state == kArguments) return code;
  return give(&out, p->state == kWhy ? TESSERA_PLUGIN_REASONING : TESSERA_PLUGIN_CONTENT, p->held, p->num_held);
}

static const tessera_plugin_chat_format kFormat = {
    .size = sizeof(tessera_plugin_chat_format),
    .name = "bracket",
    .finds = TESSERA_PLUGIN_FINDS_REASONING | TESSERA_PLUGIN_FINDS_CALLS,
    .example = "[[why the user asks]]I look. [[call get_weather {\"city\": \"Oslo [[]]\", \"days\": [[1], [2]]}]] Wait.",
    .reasoning_opening = "[[why ",
    .reasoning_closing = "]]",
    .begin = begin,
    .push = push,
    .finish = finish,
    .release = free};

int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  return host->add_chat_format(host, &kFormat, error);
}
