#include "tessera/text/decoder.h"

#include <utility>

#include "tessera/text/byte_alphabet.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using Step = Decoder::Step;
using StepSpec = Decoder::StepSpec;

// One step of the chain: changes the tokens that it gets and passes them on to the next step. After a Fuse step, the
// tokens are fragments of one text.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual void push(std::string_view token) = 0;
  virtual void finish() = 0;
};

class Output : public Stage {
 public:
  void push(std::string_view token) override { out->append(token); }
  void finish() override {}
  std::string* out = nullptr;
};

class JoinWithSpaces : public Stage {
 public:
  explicit JoinWithSpaces(Stage& next) : next_(next) {}
  void push(std::string_view token) override {
    if (!std::exchange(first_, false)) next_.push(" ");
    next_.push(token);
  }
  void finish() override {
    first_ = true;
    next_.finish();
  }

 private:
  Stage& next_;
  bool first_ = true;
};

class ReplaceStage : public Stage {
 public:
  ReplaceStage(const StepSpec& spec, Stage& next) : spec_(spec), next_(next) {}
  void push(std::string_view token) override {
    std::string text;
    std::size_t done = 0;
    for (std::size_t at; (at = token.find(spec_.pattern, done)) != std::string_view::npos;) {
      text.append(token, done, at - done);
      text += spec_.content;
      done = at + spec_.pattern.size();
    }
    text.append(token, done);
    next_.push(text);
  }
  void finish() override { next_.finish(); }

 private:
  const StepSpec& spec_;
  Stage& next_;
};

class MetaspaceStage : public Stage {
 public:
  MetaspaceStage(const StepSpec& spec, Stage& next) : spec_(spec), next_(next) {}
  void push(std::string_view token) override {
    const bool drop = std::exchange(first_, false) && spec_.strip_first;
    std::string text;
    for (std::size_t pos = 0; pos < token.size();) {
      if (token.substr(pos).starts_with(spec_.pattern)) {
        if (!drop) text += ' ';
        pos += spec_.pattern.size();
      } else {
        text += token[pos++];
      }
    }
    next_.push(text);
  }
  void finish() override {
    first_ = true;
    next_.finish();
  }

 private:
  const StepSpec& spec_;
  Stage& next_;
  bool first_ = true;
};

// Returns the byte that a token such as "<0x0A>" stands for (10); -1 for any other token.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

class ByteFallbackStage : public Stage {
 public:
  explicit ByteFallbackStage(Stage& next) : next_(next) {}
  void push(std::string_view token) override {
    const int byte = byte_of_token(token);
    if (byte < 0) {
      flush(true);
      next_.push(token);
      return;
    }
    held_ += static_cast<char>(static_cast<unsigned char>(byte));
    flush(false);
  }
  void finish() override {
    flush(true);
    next_.finish();
  }

 private:
  // Passes on complete characters, and U+FFFD for each byte that is certainly part of no character. If `all` is true,
  // no byte follows, so the bytes of an incomplete character also become U+FFFD.
  void flush(bool all) {
    std::size_t pos = 0;
    while (pos < held_.size()) {
      const Utf8Step step = decode_utf8(held_, pos);
      if (step.kind == Utf8Step::Kind::kIncomplete && !all) break;
      if (step.kind == Utf8Step::Kind::kCharacter) {
        next_.push(std::string_view(held_).substr(pos, step.length));
      } else {
        for (std::size_t i = 0; i < step.length; ++i) next_.push(kReplacementCharacter);
      }
      pos += step.length;
    }
    held_.erase(0, pos);
  }
  Stage& next_;
  std::string held_;  // beginning of an incomplete character
};

class ByteLevelStage : public Stage {
 public:
  explicit ByteLevelStage(Stage& next) : next_(next) {}
  void push(std::string_view token) override {
    append_bytes(held_, token);
    const std::size_t safe = complete_utf8_prefix(held_);
    if (safe == 0) return;
    next_.push(replace_invalid_utf8(std::string_view(held_).substr(0, safe)));
    held_.erase(0, safe);
  }
  void finish() override {
    if (!held_.empty()) next_.push(replace_invalid_utf8(held_));
    held_.clear();
    next_.finish();
  }

 private:
  Stage& next_;
  std::string held_;  // beginning of an incomplete character
};

// Strips the character spec.content at both ends of each token: at most spec.start times at the beginning and spec.stop
// times at the end. After a Fuse or a ByteLevel, strips only at the ends of the whole text.
class StripStage : public Stage {
 public:
  StripStage(const StepSpec& spec, bool fused, Stage& next) : spec_(spec), fused_(fused), next_(next) {}
  void push(std::string_view token) override {
    while (at_beginning_ && stripped_ < spec_.start && token.starts_with(spec_.content)) {
      token.remove_prefix(spec_.content.size());
      ++stripped_;
    }
    if (!token.empty()) {
      at_beginning_ = false;
      held_ += token;
      // At most the last `stop` occurrences at the end may still be stripped. Everything before them is final.
      std::size_t end = held_.size();
      for (std::int64_t i = 0; i < spec_.stop && std::string_view(held_).substr(0, end).ends_with(spec_.content); ++i) {
        end -= spec_.content.size();
      }
      next_.push(std::string_view(held_).substr(0, end));
      held_.erase(0, end);
    }
    if (!fused_) reset();
  }
  void finish() override {
    reset();
    next_.finish();
  }

 private:
  void reset() {
    held_.clear();
    at_beginning_ = true;
    stripped_ = 0;
  }
  const StepSpec& spec_;
  bool fused_;
  Stage& next_;
  std::string held_;  // stripped if the text ends here, passed on if more text follows
  bool at_beginning_ = true;
  std::int64_t stripped_ = 0;
};

class Chain : public TokenStream {
 public:
  Chain(std::vector<StepSpec> steps, bool join_with_spaces) : steps_(std::move(steps)) {
    head_ = &output_;
    if (join_with_spaces) add(std::make_unique<JoinWithSpaces>(*head_));
    std::size_t fuse = 0;  // index of the first step that joins all tokens to one text
    while (fuse < steps_.size() && steps_[fuse].step != Step::kFuse && steps_[fuse].step != Step::kByteLevel) ++fuse;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const StepSpec& spec = steps_[i];
      switch (spec.step) {
        case Step::kReplace: add(std::make_unique<ReplaceStage>(spec, *head_)); break;
        case Step::kByteFallback: add(std::make_unique<ByteFallbackStage>(*head_)); break;
        case Step::kFuse: break;  // nothing to do: the steps after it already treat the tokens as fragments
        case Step::kStrip: add(std::make_unique<StripStage>(spec, i > fuse, *head_)); break;
        case Step::kMetaspace: add(std::make_unique<MetaspaceStage>(spec, *head_)); break;
        case Step::kByteLevel: add(std::make_unique<ByteLevelStage>(*head_)); break;
      }
    }
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void push(std::string_view token, std::string& out) override {
    output_.out = &out;
    head_->push(token);
  }
  void finish(std::string& out) override {
    output_.out = &out;
    head_->finish();
  }

 private:
  void add(std::unique_ptr<Stage> stage) {
    head_ = stage.get();
    stages_.push_back(std::move(stage));
  }
  std::vector<StepSpec> steps_;  // borrowed by the stages
  Output output_;
  std::vector<std::unique_ptr<Stage>> stages_;
  Stage* head_;
};

Result<StepSpec> make_replace(const Field& field) {
  const Field text = field.member("pattern").member("String");
  if (text.absent()) return field.member("pattern").invalid("accepted: {\"String\": …}");
  StepSpec spec{.step = Step::kReplace};
  spec.pattern = TRY(text.string());
  spec.content = TRY(field.member("content").string());
  if (spec.pattern.empty()) return text.invalid("accepted: a string that is not empty");
  return spec;
}

Result<StepSpec> make_strip(const Field& field) {
  StepSpec spec{.step = Step::kStrip};
  append_utf8(spec.content, TRY(field.member("content").character()));
  spec.start = TRY(field.member("start").integer_or(0));
  spec.stop = TRY(field.member("stop").integer_or(0));
  if (spec.start < 0) return field.member("start").invalid("accepted: 0 or more");
  if (spec.stop < 0) return field.member("stop").invalid("accepted: 0 or more");
  return spec;
}

Result<StepSpec> make_metaspace(const Field& field) {
  StepSpec spec{.step = Step::kMetaspace};
  const Field replacement = field.member("replacement");
  append_utf8(spec.pattern, replacement.absent() ? U'▁' : TRY(replacement.character()));
  const bool add_prefix = TRY(field.member("add_prefix_space").boolean_or(true));
  const std::string scheme = TRY(field.member("prepend_scheme").string_or(add_prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return field.member("prepend_scheme").unsupported({"always", "first", "never"});
  }
  spec.strip_first = scheme != "never";
  return spec;
}

// Appends the steps of `field` to `out`.
Status make(const Field& field, int depth, std::vector<StepSpec>& out) {
  TRY(field.check_depth(depth));
  const Field type_field = field.member("type");
  const std::string type = TRY(type_field.string());
  if (type == "Sequence") {
    for (const Field& item : TRY(field.member("decoders").elements())) TRY(make(item, depth + 1, out));
    return ok_status();
  }
  bool fused = false;
  for (const StepSpec& spec : out) fused = fused || spec.step == Step::kFuse || spec.step == Step::kByteLevel;
  if (type == "Strip") {
    out.push_back(TRY(make_strip(field)));
  } else if (type == "Fuse") {
    out.push_back({.step = Step::kFuse});
  } else if (fused && (type == "Replace" || type == "ByteFallback" || type == "Metaspace" || type == "ByteLevel")) {
    return type_field.unsupported({"Strip and Fuse behind Fuse or ByteLevel"});
  } else if (type == "Replace") {
    out.push_back(TRY(make_replace(field)));
  } else if (type == "ByteFallback") {
    out.push_back({.step = Step::kByteFallback});
  } else if (type == "Metaspace") {
    out.push_back(TRY(make_metaspace(field)));
  } else if (type == "ByteLevel") {
    out.push_back({.step = Step::kByteLevel});
  } else {
    return type_field.unsupported({"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip", "Sequence"});
  }
  return ok_status();
}

}  // namespace

Result<Decoder> Decoder::create(const Field& field) {
  Decoder decoder;
  decoder.join_with_spaces_ = field.absent();
  if (!field.absent()) TRY(make(field, 0, decoder.steps_));
  return decoder;
}

std::unique_ptr<TokenStream> Decoder::start() const { return std::make_unique<Chain>(steps_, join_with_spaces_); }

}  // namespace tessera
