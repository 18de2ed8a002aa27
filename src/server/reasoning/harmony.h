// Messages as gpt-oss writes them, in the form that OpenAI calls harmony:
//
//   <|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"a": 1}<|call|>
//   header                                                                              body     end
//
// The prompt ends with <|start|>assistant, so that the first header of a turn begins behind it. The recipient may also
// stand in front of the channel. The channel is "analysis" (reasoning), "commentary" (calls, and what is said before
// them) or "final" (the answer).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kHarmonyStart = "<|start|>";
inline constexpr std::string_view kHarmonyChannel = "<|channel|>";
inline constexpr std::string_view kHarmonyConstrain = "<|constrain|>";
inline constexpr std::string_view kHarmonyMessage = "<|message|>";
inline constexpr std::string_view kHarmonyEnd = "<|end|>";
inline constexpr std::string_view kHarmonyCall = "<|call|>";
inline constexpr std::string_view kHarmonyReturn = "<|return|>";
inline constexpr std::string_view kHarmonyRecipient = "to=";
inline constexpr std::size_t kMaxHarmonyHeaderBytes = 1024;

struct HarmonyHeader {
  std::string_view channel{};    // "" where the header names none
  std::string_view recipient{};  // "functions.get"; "": the user
};

// `text`: what stands in front of <|message|>; the views are parts of it. None where it is no header: one has a role, a
// channel, a recipient and a type of the body, each a word and at most once.
std::optional<HarmonyHeader> read_harmony_header(std::string_view text);

}  // namespace tessera
