// Field numbers of the messages of sentencepiece_model.proto that Tessera reads and writes.
#pragma once

#include <cstdint>

namespace tessera::proto_fields {

// Fields of the model.
inline constexpr std::uint32_t kPieces = 1;
inline constexpr std::uint32_t kTrainerSpec = 2;
inline constexpr std::uint32_t kNormalizerSpec = 3;
inline constexpr std::uint32_t kSelfTestData = 4;
// Fields of a piece.
inline constexpr std::uint32_t kPieceText = 1;
inline constexpr std::uint32_t kPieceScore = 2;
inline constexpr std::uint32_t kPieceKind = 3;
// Fields of trainer_spec.
inline constexpr std::uint32_t kModelType = 3;
inline constexpr std::uint32_t kTreatWhitespaceAsSuffix = 24;
inline constexpr std::uint32_t kByteFallback = 35;
// Fields of normalizer_spec.
inline constexpr std::uint32_t kPrecompiledCharsmap = 2;
inline constexpr std::uint32_t kAddDummyPrefix = 3;
inline constexpr std::uint32_t kRemoveExtraWhitespaces = 4;

}  // namespace tessera::proto_fields
