// Parses a text in pieces for tests of tool calls, and checks the properties of every result. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/testing/paths.h"
#include "tessera/server/tools/tool_call_parser.h"

namespace tessera {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Call& call) {
  return out << call.name << '(' << call.arguments << ')';
}

struct Parsed {
  std::string content{};
  std::vector<Call> calls{};
  bool operator==(const Parsed&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << '[' << parsed.content << ']';
  for (const Call& call : parsed.calls) out << ' ' << call;
  return out;
}

// Adds the output of a parser with ids "id0", "id1", …, and checks what must hold for every sequence of deltas.
inline void add_deltas(const ToolText& part, Parsed& out) {
  out.content += part.content;
  for (const ToolCallDelta& delta : part.calls) {
    if (!delta.name.empty()) {
      EXPECT_EQ(delta.index, static_cast<int>(out.calls.size()));
      EXPECT_EQ(delta.id, "id" + std::to_string(delta.index));
      out.calls.push_back({delta.name, ""});
    }
    ASSERT_EQ(delta.index, static_cast<int>(out.calls.size()) - 1);
    EXPECT_EQ(delta.id.empty(), delta.name.empty());
    out.calls.back().arguments += delta.arguments;
  }
}

// Parses the text in pieces. cut() returns the length of the next piece in bytes.
template <class Cut>
Parsed parse_calls(std::string_view name, const Json& tools, std::string_view text, Cut cut) {
  int calls = 0;
  auto parser = ToolCallParser::create(name, tools, [&] { return "id" + std::to_string(calls++); });
  EXPECT_TRUE(parser.ok()) << name;
  Parsed out;
  while (!text.empty()) {
    const std::size_t length = std::min<std::size_t>(text.size(), cut());
    add_deltas(parser->push(text.substr(0, length)), out);
    text.remove_prefix(length);
  }
  add_deltas(parser->finish(), out);
  return out;
}

// Parses the text as a whole, byte by byte, and in two parts for each possible cut. Checks the result each time.
inline void expect_calls(std::string_view name, const Json& tools, std::string_view text, const Parsed& expected) {
  EXPECT_EQ(parse_calls(name, tools, text, [&] { return text.size(); }), expected) << name << ": " << text;
  EXPECT_EQ(parse_calls(name, tools, text, [] { return std::size_t{1}; }), expected) << name << ": " << text;
  for (std::size_t at = 1; at < text.size(); ++at) {
    std::size_t length = at;
    const auto cut = [&] { return std::exchange(length, text.size()); };
    ASSERT_EQ(parse_calls(name, tools, text, cut), expected) << name << " cut at " << at << ": " << text;
  }
}

// Returns a file of the shared data; "" if it is absent.
inline std::string shared_text(const std::string& path) {
  std::ifstream file(testing::shared_path("data/" + path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace tessera
