#include "tessera/text/normalizer.h"

#include <utility>
#include <vector>

#include "tessera/text/byte_alphabet.h"
#include "tessera/text/pattern_field.h"
#include "tessera/text/sentencepiece/charsmap.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  Status apply(std::string& text) const override {
    // ASCII is the same in every normal form.
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x80) continue;
      text = TRY(normalize(text, form_));
      break;
    }
    return ok_status();
  }

 private:
  NormalForm form_;
};

// A rule, which appends the replacement of one character to `out`.
using CharacterRule = void (*)(char32_t code, std::string_view bytes, std::string& out);

class PerCharacter : public Normalizer {
 public:
  explicit PerCharacter(CharacterRule rule) : rule_(rule) {}
  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t pos = 0; pos < text.size();) {
      const Utf8Step step = decode_utf8(text, pos);
      rule_(step.code, std::string_view(text).substr(pos, step.length), out);
      pos += step.length;
    }
    text = std::move(out);
    return ok_status();
  }

 private:
  CharacterRule rule_;
};

void lowercase(char32_t code, std::string_view, std::string& out) {
  if (code == 0x130) {
    out += "i\xCC\x87";  // U+0130 is the only character whose lower case has two characters
  } else {
    append_utf8(out, to_lower(code));
  }
}

void strip_accent(char32_t code, std::string_view bytes, std::string& out) {
  if (!is_mark(code)) out += bytes;
}

void to_symbols(char32_t, std::string_view bytes, std::string& out) { append_symbols(out, bytes); }

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status apply(std::string& text) const override {
    std::size_t begin = 0;
    std::size_t end = text.size();
    bool seen = false;
    for (std::size_t pos = 0; pos < text.size();) {
      const Utf8Step step = decode_utf8(text, pos);
      if (!is_whitespace(step.code)) {
        if (!seen && left_) begin = pos;
        if (right_) end = pos + step.length;
        seen = true;
      }
      pos += step.length;
    }
    if (!seen && (left_ || right_)) {
      text.clear();
    } else {
      text = text.substr(begin, end - begin);
    }
    return ok_status();
  }

 private:
  bool left_;
  bool right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : prefix_(std::move(text)) {}
  Status apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return ok_status();
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(SplitPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status apply(std::string& text) const override {
    std::vector<TextRange> matches;
    TRY(pattern_.find_all(text, matches));
    if (matches.empty()) return ok_status();
    std::string out;
    std::size_t done = 0;
    for (const TextRange& match : matches) {
      out.append(text, done, match.begin - done);
      out += content_;
      done = match.end;
    }
    out.append(text, done);
    text = std::move(out);
    return ok_status();
  }

 private:
  SplitPattern pattern_;
  std::string content_;
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  Status apply(std::string& text) const override {
    text = map_.replace_graphemes(text);
    return ok_status();
  }

 private:
  Charsmap map_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  Status apply(std::string& text) const override {
    for (const auto& step : steps_) TRY(step->apply(text));
    return ok_status();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

using NormalizerPtr = std::unique_ptr<Normalizer>;

// Returns the value of a base64 digit; -1 for any other character.
int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// Returns the bytes of a base64 string field.
Result<std::string> read_base64(const Field& field) {
  std::string digits = TRY(field.string());
  while (digits.ends_with('=')) digits.pop_back();
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char c : digits) {
    const int digit = base64_digit(c);
    if (digit < 0) return field.invalid("accepted: base64");
    bits = (bits << 6) | static_cast<unsigned>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(static_cast<unsigned char>(bits >> count));
  }
  return out;
}

Result<NormalizerPtr> make_precompiled(const Field& field) {
  const Field map_field = field.member("precompiled_charsmap");
  const std::string blob = TRY(read_base64(map_field));
  Result<Charsmap> map = Charsmap::parse(blob, "the table of replacements");
  if (!map.ok()) return map_field.invalid(map.status().message());
  return NormalizerPtr(new Precompiled(*std::move(map)));
}

Result<NormalizerPtr> make(const Field& field, int depth) {
  TRY(field.check_depth(depth));
  const Field type_field = field.member("type");
  const std::string type = TRY(type_field.string());
  if (type == "NFC") return NormalizerPtr(new UnicodeForm(NormalForm::kNfc));
  if (type == "NFD") return NormalizerPtr(new UnicodeForm(NormalForm::kNfd));
  if (type == "NFKC") return NormalizerPtr(new UnicodeForm(NormalForm::kNfkc));
  if (type == "NFKD") return NormalizerPtr(new UnicodeForm(NormalForm::kNfkd));
  if (type == "Lowercase") return NormalizerPtr(new PerCharacter(lowercase));
  if (type == "StripAccents") return NormalizerPtr(new PerCharacter(strip_accent));
  if (type == "ByteLevel") return NormalizerPtr(new PerCharacter(to_symbols));
  if (type == "Precompiled") return make_precompiled(field);
  if (type == "Strip") {
    const bool left = TRY(field.member("strip_left").boolean_or(true));
    const bool right = TRY(field.member("strip_right").boolean_or(true));
    return NormalizerPtr(new Strip(left, right));
  }
  if (type == "Prepend") {
    std::string prefix = TRY(field.member("prepend").string());
    return NormalizerPtr(new Prepend(std::move(prefix)));
  }
  if (type == "Replace") {
    SplitPattern pattern = TRY(make_pattern(field.member("pattern")));
    std::string content = TRY(field.member("content").string());
    return NormalizerPtr(new Replace(std::move(pattern), std::move(content)));
  }
  if (type == "Sequence") {
    std::vector<NormalizerPtr> steps;
    for (const Field& item : TRY(field.member("normalizers").elements())) steps.push_back(TRY(make(item, depth + 1)));
    return NormalizerPtr(new Sequence(std::move(steps)));
  }
  return type_field.unsupported({"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Prepend",
                                 "Replace", "ByteLevel", "Precompiled", "Sequence"});
}

}  // namespace

Result<std::unique_ptr<Normalizer>> make_normalizer(const Field& field) {
  if (field.absent()) return NormalizerPtr();
  return make(field, 0);
}

}  // namespace tessera
