// A plugin with the chat format "faulty". The format works while the plugin registers. Later, in a text of more than 20
// bytes, it commits the fault that the environment variable TESSERA_TEST_FAULT names.
#include <tessera_plugin.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

TESSERA_PLUGIN("faulty_format", "1.0")

namespace {

constexpr size_t kBytes = 20;

struct Parser {
  const tessera_plugin_chat* chat;
  size_t seen = 0;
};

std::string fault() {
  const char* name = std::getenv("TESSERA_TEST_FAULT");
  return name == nullptr ? "" : name;
}

int32_t give(const tessera_plugin_pieces* pieces, int32_t kind, const std::string& text, tessera_plugin_error* error) {
  return pieces->add(pieces, kind, text.data(), text.size(), error);
}

int32_t fail(const tessera_plugin_pieces* pieces, tessera_plugin_error* error) {
  const std::string what = fault();
  if (what == "error") return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "the format has had enough");
  if (what == "throws") throw std::runtime_error("out of the blue");
  if (what == "long") return pieces->add(pieces, TESSERA_PLUGIN_CONTENT, "x", size_t{1} << 40, error);
  if (what == "ignores") (void)pieces->add(pieces, TESSERA_PLUGIN_CONTENT, "x", size_t{1} << 40, error);
  if (what == "null") return pieces->add(pieces, TESSERA_PLUGIN_CONTENT, nullptr, 7, error);
  if (what == "kind") return give(pieces, 9, "x", error);
  if (what == "reasons") return give(pieces, TESSERA_PLUGIN_REASONING, "x", error);
  if (what == "no_call") return give(pieces, TESSERA_PLUGIN_ARGUMENTS, "{}", error);
  if (what == "no_name") return give(pieces, TESSERA_PLUGIN_CALL, "", error);
  if (what == "unknown") return give(pieces, TESSERA_PLUGIN_CALL, "nobodys_function", error);
  if (what == "latin") return give(pieces, TESSERA_PLUGIN_CONTENT, "\xe9t\xe9", error);
  if (what == "half") {
    const int32_t code = give(pieces, TESSERA_PLUGIN_CALL, "f", error);
    return code != TESSERA_PLUGIN_OK ? code : give(pieces, TESSERA_PLUGIN_CALL, "f", error);
  }
  return TESSERA_PLUGIN_OK;
}

int32_t begin(void*, const tessera_plugin_chat* chat, void** parser, tessera_plugin_error* error) {
  if (fault() == "begin" && chat->tools != nullptr)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "the format does not begin");
  *parser = new Parser{.chat = chat};
  return TESSERA_PLUGIN_OK;
}

// Reads "!" as a call of the function f, and all other text as content.
int32_t push(void* parser, const char* text, size_t bytes, const tessera_plugin_pieces* pieces,
             tessera_plugin_error* error) {
  auto& p = *static_cast<Parser*>(parser);
  p.seen += bytes;
  if (p.chat->tools != nullptr && p.seen > kBytes) return fail(pieces, error);
  for (size_t i = 0; i < bytes; ++i) {
    int32_t code = TESSERA_PLUGIN_OK;
    if (text[i] == '!' && p.chat->tools == nullptr) {
      code = give(pieces, TESSERA_PLUGIN_CALL, "f", error);
      if (code == TESSERA_PLUGIN_OK) code = give(pieces, TESSERA_PLUGIN_ARGUMENTS, "{}", error);
    } else {
      code = pieces->add(pieces, TESSERA_PLUGIN_CONTENT, text + i, 1, error);
    }
    if (code != TESSERA_PLUGIN_OK) return code;
  }
  return TESSERA_PLUGIN_OK;
}

int32_t finish(void* parser, const tessera_plugin_pieces*, tessera_plugin_error* error) {
  if (fault() == "finish" && static_cast<Parser*>(parser)->chat->tools != nullptr)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "the format does not end");
  return TESSERA_PLUGIN_OK;
}

const tessera_plugin_chat_format kFormat = [] {
  tessera_plugin_chat_format format{};
  format.size = sizeof(format);
  format.name = "faulty";
  format.finds = TESSERA_PLUGIN_FINDS_CALLS;
  format.example = "well!";
  format.begin = begin;
  format.push = push;
  format.finish = finish;
  format.release = [](void* parser) { delete static_cast<Parser*>(parser); };
  return format;
}();

}  // namespace

extern "C" int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  return host->add_chat_format(host, &kFormat, error);
}
