// The message format of gpt-oss, which OpenAI calls harmony:
//
//   <|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"a": 1}<|call|>
//   header                                                                              body     end
//
// The prompt ends with <|start|>assistant, so the first header of a turn begins after it. The recipient
// (to=functions.get) may also stand before the channel. The channel is "analysis" (reasoning), "commentary" (calls and
// the text before them) or "final" (the answer).
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
  std::string_view channel{};    // "": the header names no channel
  std::string_view recipient{};  // for example "functions.get"; "": the user
};

// Reads a header. `text` is the text before <|message|>. The returned views point into `text`. A header consists of a
// role, a channel, a recipient and a content type. Each of them is one word and may be missing, but none may come
// twice. Returns nothing if `text` is not a header.
std::optional<HarmonyHeader> read_harmony_header(std::string_view text);

}  // namespace tessera
