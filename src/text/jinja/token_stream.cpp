#include "tessera/text/jinja/token_stream.h"

namespace tessera::jinja {

Result<Token> TokenStream::expect(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) return fail(unexpected() + "; expected " + std::string(what));
  return take();
}

Status TokenStream::expect_operator(std::string_view op) {
  if (take_operator(op)) return ok_status();
  return fail(unexpected() + "; expected '" + std::string(op) + "'");
}

std::string TokenStream::unexpected() const {
  switch (current().kind) {
    case Token::Kind::kEnd: return "unexpected end of template";
    case Token::Kind::kPrintEnd: return "unexpected end of print statement";
    case Token::Kind::kBlockEnd: return "unexpected end of statement block";
    case Token::Kind::kString: return "unexpected string";
    default: return "unexpected '" + current().text + "'";
  }
}

void TokenStream::note_name(std::string_view name) {
  for (Signature* signature : signatures_) {
    if (name == "caller") signature->uses_caller = true;
    if (name == "varargs") signature->uses_varargs = true;
    if (name == "kwargs") signature->uses_kwargs = true;
  }
}

}  // namespace tessera::jinja
