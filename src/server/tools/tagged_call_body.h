// Reads a call whose arguments are text between tags: <parameter=city>\nOslo\n</parameter>…</function>. Values become
// JSON of the types in the function's schema (parameter_types.h). Strings are passed on as they arrive, other values
// when they are complete.
//
// A value may itself contain such tags. A closing tag therefore ends the value only if the next value's opening tag or
// the end of the call follows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/server/tools/call_body.h"
#include "tessera/server/tools/parameter_types.h"

namespace tessera {

// The tags of a format. They are constants and outlive all bodies.
struct CallTags {
  enum class Values : std::uint8_t { kBySchema, kStrings, kJson };
  struct ValueBegin {
    std::string_view tag{};  // "": the value directly follows `name_end`
    Values values = Values::kBySchema;
  };
  std::string_view name_begin;  // for example "<parameter="
  std::string_view name_end;    // for example ">"
  std::span<const ValueBegin> value_begins{};
  std::string_view value_end;  // for example "</parameter>"
  std::string_view end;        // for example "</function>"
  // A tag that also ends the call, because a model may forget `end` or the last `value_end`; "": none.
  std::string_view outer_end{};
  // True if values stand on lines of their own. The line breaks after the opening tag and before the closing tag are
  // then no part of the value. A value without a closing tag ends at a line that begins with the opening tag of another
  // parameter.
  bool lines = false;
};

class TaggedCallBody final : public CallBody {
 public:
  // `schema` describes the function's parameters and may be null. `schema` and `tags` outlive the body.
  TaggedCallBody(const CallTags& tags, std::string name, const Json* schema);

  State push(char c) override;
  void finish() override;
  const std::string& name() const override { return name_; }
  bool is_call() const override { return begun_; }
  std::string take_arguments() override;

 private:
  enum class Mode : std::uint8_t {
    kString,     // the value is passed on as it arrives
    kMaybeNull,  // the value so far may be the beginning of "null"
    kWhole,      // the value is passed on at its end
  };
  enum class Match : std::uint8_t { kNo, kPart, kWhole };
  // The tag that follows a value or the call's head.
  struct Next {
    std::string name{};  // name of the next value; "": the call ends
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
  std::string held_;       // text that may be the beginning of a tag
  std::string arguments_;  // text that take_arguments() has not returned yet
  std::string value_;      // the value so far, in the modes kMaybeNull and kWhole
  ParameterTypes types_;
  Mode mode_ = Mode::kString;
  bool begun_ = false;  // the first parameter or the end of the call has come
  bool in_value_ = false;
  bool at_line_end_ = false;  // true directly after an opening tag
  bool done_ = false;
};

}  // namespace tessera
