// A call whose arguments stand between tags, as text: <parameter=city>\nOslo\n</parameter>…</function>. They become
// JSON by the types that the function's schema gives them (parameter_types.h). Strings are handed on as they are
// written, other values when they are complete.
//
// A value ends at its closing tag only where that is followed by the next value's opening tag or by the end of the
// call: a value may have such tags in its own text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/server/tools/call_body.h"
#include "tessera/server/tools/parameter_types.h"

namespace tessera {

// The tags of a form. Constants: they outlive all bodies.
struct CallTags {
  enum class Values : std::uint8_t { kBySchema, kStrings, kJson };
  struct ValueBegin {
    std::string_view tag{};  // "": the value follows the name's end at once
    Values values = Values::kBySchema;
  };
  std::string_view name_begin;  // "<parameter="
  std::string_view name_end;    // ">"
  std::span<const ValueBegin> value_begins{};
  std::string_view value_end;  // "</parameter>"
  std::string_view end;        // "</function>"
  // What ends the call too, where the model forgot `end` or the last value's end; "": nothing.
  std::string_view outer_end{};
  // Values stand on lines of their own: a line's end behind the opening tag and one before the closing tag are not the
  // value's. A value whose closing tag was forgotten ends at a line that begins with the tag of another parameter.
  bool lines = false;
};

class TaggedCallBody final : public CallBody {
 public:
  // `schema`, of the function's parameters, may be null; it and `tags` outlive this.
  TaggedCallBody(const CallTags& tags, std::string name, const Json* schema);

  State push(char c) override;
  void finish() override;
  const std::string& name() const override { return name_; }
  bool is_call() const override { return begun_; }
  std::string take_arguments() override;

 private:
  enum class Mode : std::uint8_t {
    kString,     // its beginning is handed on
    kMaybeNull,  // all of it may be the beginning of "null"
    kWhole,      // is handed on at its end
  };
  enum class Match : std::uint8_t { kNo, kPart, kWhole };
  // What follows a value, or the call's head.
  struct Next {
    std::string name{};  // of the next value; "": the end of the call
    CallTags::Values values = CallTags::Values::kBySchema;
  };

  Match match_spaces_and(std::string_view& text, std::string_view tag) const;
  Match match_name(std::string_view text, Next& next) const;
  Match match_next(std::string_view text, bool outer, Next& next) const;
  Match match_value_end(std::string_view text, Next& next) const;
  bool take_value();
  void begin_next(const Next& next);
  void add_value(std::string_view text);
  void end_value();

  const CallTags& tags_;
  std::string name_;
  const Json* schema_;
  std::string held_;       // may be the tags that come next
  std::string arguments_;  // not taken yet
  std::string value_;      // kMaybeNull, kWhole: what has come of it
  ParameterTypes types_;
  Mode mode_ = Mode::kString;
  bool begun_ = false;  // the first parameter, or the end of the call
  bool in_value_ = false;
  bool at_line_end_ = false;  // directly behind an opening tag
  bool done_ = false;
};

}  // namespace tessera
