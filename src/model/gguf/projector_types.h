// Lists the types of projectors that the engine runs, as clip.projector_type spells them.
#pragma once

#include <string_view>

namespace tessera {

inline constexpr std::string_view kQwen2Projector = "qwen2vl_merger";
inline constexpr std::string_view kQwen25Projector = "qwen2.5vl_merger";
inline constexpr std::string_view kQwen3Projector = "qwen3vl_merger";

}  // namespace tessera
