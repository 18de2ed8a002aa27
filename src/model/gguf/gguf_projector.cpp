#include "tessera/model/gguf/gguf_projector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/config/vision_config.h"
#include "tessera/model/gguf/projector_types.h"

namespace tessera {
namespace {

constexpr std::int64_t kFrames = 2;         // frames in a patch; the file has one tensor for each
constexpr std::int64_t kUsualMerge = 2;     // patches along a side of an image token, if the file does not say
constexpr std::int64_t kUsualWindow = 112;  // side of Qwen2.5-VL's windows in pixels; converters do not write it

const std::string kProjectorType = "clip.projector_type";
const std::string kVisionType = "clip.vision.projector_type";  // in files that also have an audio projector
const std::string kMerge = "clip.vision.spatial_merge_size";
const std::string kDeepstack = "clip.vision.is_deepstack_layers";
const std::string kVocabulary = "tokenizer.ggml.tokens";

// Returns the id of a control token in the vocabulary of the language model.
Result<std::int64_t> image_token_id(const GgufModel& model, std::string_view text) {
  const GgufValue* value = model.find(kVocabulary);
  const auto tokens = value != nullptr ? value->strings() : std::nullopt;
  if (tokens) {
    const auto found = std::ranges::find(*tokens, text);
    if (found != tokens->end()) return found - tokens->begin();
  }
  return model.wrong(kVocabulary, fmt::format("with a projector, a list of tokens with \"{}\"", text));
}

Result<std::int64_t> tower_depth(const GgufModel& projector) {
  const std::string key = "clip.vision.block_count";
  const std::int64_t depth = TRY(projector.integer(key));
  if (depth < 1 || depth > VisionConfig::kMaxLayers)
    return projector.wrong(key, fmt::format("1 to {}", VisionConfig::kMaxLayers));
  return depth;
}

// Returns the blocks of the tower whose outputs become deepstack levels.
Result<std::vector<std::int64_t>> deepstack_blocks(const GgufModel& projector) {
  std::vector<std::int64_t> blocks;
  const GgufValue* value = projector.find(kDeepstack);
  if (value == nullptr) return blocks;
  const std::int64_t depth = TRY(tower_depth(projector));
  const auto flags = value->booleans();
  if (!flags || std::ssize(*flags) != depth)
    return projector.wrong(kDeepstack, fmt::format("a list of true or false for each of {} blocks", depth));
  for (std::size_t block = 0; block < flags->size(); ++block)
    if ((*flags)[block]) blocks.push_back(static_cast<std::int64_t>(block));
  return blocks;
}

Json list_of(const std::vector<std::int64_t>& numbers) {
  Json::Array list;
  for (const std::int64_t number : numbers) list.emplace_back(number);
  return list;
}

// Sets the sections of the rotation. GGUF files have a fourth section, which is 0.
Status write_sections(ConfigWriter& writer, bool interleaved) {
  const std::string key = writer.key("rope.dimension_sections");
  const GgufValue* value = writer.model().find(key);
  auto sections = value != nullptr ? value->integers() : std::nullopt;
  if (!sections || sections->size() < 3 ||
      std::any_of(sections->begin() + 3, sections->end(), [](auto n) { return n != 0; }))
    return writer.model().wrong(key, "with a projector, three sizes, and zeros after them");
  sections->resize(3);
  Json rope = *writer.config().find("rope_parameters");
  rope.set("mrope_section", list_of(*sections));
  rope.set("mrope_interleaved", interleaved);
  writer.set("rope_parameters", std::move(rope));
  return ok_status();
}

// Checks that the tower's rows have the size of the language model's embeddings, and as many deepstack levels as the
// language model adds.
Status check_fit(const ConfigWriter& writer) {
  const GgufModel& projector = *writer.model().projector();
  const std::int64_t hidden = TRY(writer.integer("embedding_length"));
  if (TRY(projector.integer("clip.vision.projection_dim")) != hidden)
    return projector.wrong("clip.vision.projection_dim",
                           fmt::format("{}, {} of {}", hidden, writer.key("embedding_length"), writer.model().path()));
  const std::int64_t levels = TRY(writer.optional_integer("n_deepstack_layers")).value_or(0);
  const std::vector<std::int64_t> blocks = TRY(deepstack_blocks(projector));
  const std::int64_t found = std::ssize(blocks);
  const std::int64_t depth = TRY(tower_depth(projector));
  for (std::int64_t block = 0; block < depth; ++block) {
    const std::string tensor = fmt::format("v.deepstack.{}.norm.weight", block);
    const bool wanted = std::ranges::find(blocks, block) != blocks.end();
    if ((projector.find_tensor(tensor) != nullptr) != wanted)
      return data_loss(fmt::format("{}: tensor {} is {}, but {} says otherwise", projector.path(), tensor,
                                   wanted ? "missing" : "there", kDeepstack));
  }
  if (found == levels) return ok_status();
  return projector.wrong(kDeepstack, fmt::format("{} times true, as {} of {} says, not {} times", levels,
                                                 writer.key("n_deepstack_layers"), writer.model().path(), found));
}

// Writes the members that describe windows. Every n-th block attends to the whole image. If n is 0, all blocks do.
Status write_windows(const GgufModel& projector, std::int64_t depth, Json& vision) {
  const std::int64_t every = TRY(projector.integer("clip.vision.n_wa_pattern"));
  std::vector<std::int64_t> whole;
  for (std::int64_t block = 0; block < depth; ++block)
    if (every == 0 || (block + 1) % every == 0) whole.push_back(block);
  vision.set("fullatt_block_indexes", list_of(whole));
  vision.set("window_size", TRY(projector.optional_integer("clip.vision.window_size")).value_or(kUsualWindow));
  return ok_status();
}

// Writes the members of Qwen2-VL's tower. The ratio of an MLP's sizes is taken from its first matrix, because
// clip.vision.feed_forward_length is wrong: converters write the size of the language model's MLPs, or 0.
Status write_qwen2_tower(const GgufModel& projector, Json& vision) {
  for (const char* key : {"clip.use_gelu", "clip.use_silu"})
    if (TRY(projector.optional_boolean(key)).value_or(false))
      return unimplemented(projector.wrong(key, "false, or no such key: the tower has the quick GELU").message());
  const std::int64_t width = TRY(projector.integer("clip.vision.embedding_length"));
  if (width < 1 || width > VisionConfig::kMaxHiddenSize)
    return projector.wrong("clip.vision.embedding_length", fmt::format("1 to {}", VisionConfig::kMaxHiddenSize));
  const GgufTensor* first = projector.find_tensor("v.blk.0.ffn_up.weight");
  if (first == nullptr || first->shape.size() != 2 || (first->shape[0] * first->shape[1]) % (width * width) != 0)
    return data_loss(fmt::format("{}: tensor v.blk.0.ffn_up.weight is {}; accepted: a matrix of {} × n · {} values",
                                 projector.path(), first == nullptr ? "missing" : shape_text(first->shape), width,
                                 width));
  vision.set("embed_dim", width);
  vision.set("mlp_ratio", first->shape[0] * first->shape[1] / (width * width));
  vision.set("hidden_size", TRY(projector.integer("clip.vision.projection_dim")));
  return ok_status();
}

// Writes a tower's sizes under the member names of Qwen2.5-VL's config.
Status write_tower_sizes(const GgufModel& projector, Json& vision) {
  for (const auto& [key, member] :
       {std::pair("embedding_length", "hidden_size"), std::pair("feed_forward_length", "intermediate_size"),
        std::pair("projection_dim", "out_hidden_size")})
    vision.set(member, TRY(projector.integer(fmt::format("clip.vision.{}", key))));
  return ok_status();
}

Status write_positions(const GgufModel& projector, Json& vision) {
  const GgufTensor* positions = projector.find_tensor("v.position_embd.weight");
  if (positions == nullptr || positions->shape.size() != 2)
    return data_loss(fmt::format("{}: tensor v.position_embd.weight is {}; accepted: a matrix", projector.path(),
                                 positions == nullptr ? "missing" : shape_text(positions->shape)));
  vision.set("num_position_embeddings", positions->shape[0]);
  vision.set("deepstack_visual_indexes", list_of(TRY(deepstack_blocks(projector))));
  return ok_status();
}

Result<Json> vision_config(const GgufModel& projector) {
  Json vision = Json::object();
  const std::int64_t depth = TRY(tower_depth(projector));
  vision.set("depth", depth);
  vision.set("num_heads", TRY(projector.integer("clip.vision.attention.head_count")));
  vision.set("patch_size", TRY(projector.integer("clip.vision.patch_size")));
  vision.set("spatial_merge_size", TRY(projector.optional_integer(kMerge)).value_or(kUsualMerge));
  vision.set("temporal_patch_size", kFrames);
  const std::string type = TRY(projector_type(projector));
  if (type == kQwen2Projector) {
    TRY(write_qwen2_tower(projector, vision));
    return vision;
  }
  TRY(write_tower_sizes(projector, vision));
  TRY(type == kQwen25Projector ? write_windows(projector, depth, vision) : write_positions(projector, vision));
  return vision;
}

// Copies three numbers, one for each colour.
Status copy_colours(const GgufModel& projector, const std::string& key, const char* member, Json& processor) {
  const GgufValue* value = projector.find(key);
  const auto numbers = value != nullptr ? value->numbers() : std::nullopt;
  if (!numbers || numbers->size() != 3) return projector.wrong(key, "three numbers: red, green, blue");
  Json::Array list;
  for (const double number : *numbers) list.emplace_back(number);
  processor.set(member, std::move(list));
  return ok_status();
}

}  // namespace

Result<std::string> projector_type(const GgufModel& projector) {
  if (std::optional<std::string> type = TRY(projector.optional_string(kVisionType))) return *std::move(type);
  return projector.string(kProjectorType);
}

Result<const GgufImages*> projector_images(const GgufModel& projector, const GgufArchitecture& architecture) {
  if (TRY(projector.string("general.architecture")) != "clip")
    return projector.wrong("general.architecture", "\"clip\", that of projectors");
  if (architecture.images.empty())
    return unimplemented(fmt::format("{}: a projector beside {} is not supported; accepted: beside {}",
                                     projector.path(), architecture.name, architectures_with_images()));
  const std::string type = TRY(projector_type(projector));
  const std::string key = projector.find(kVisionType) != nullptr ? kVisionType : kProjectorType;
  std::vector<std::string> accepted;
  for (const GgufImages& images : architecture.images) accepted.push_back(fmt::format("\"{}\"", images.projector));
  if (!TRY(projector.optional_boolean("clip.has_vision_encoder")).value_or(false))
    return unimplemented(fmt::format("{}: {} is \"{}\", a projector of audio; accepted: {}, of images",
                                     projector.path(), key, type, fmt::join(accepted, ", ")));
  const auto found = std::ranges::find(architecture.images, type, &GgufImages::projector);
  if (found != architecture.images.end()) return &*found;
  return unimplemented(
      projector.wrong(key, fmt::format("{} beside {}", fmt::join(accepted, ", "), architecture.name)).message());
}

Status write_images(ConfigWriter& writer, const GgufImages& images) {
  TRY(check_fit(writer));
  Json::Array names;
  names.emplace_back(std::string(images.architecture));
  writer.set("architectures", std::move(names));
  TRY(write_sections(writer, images.interleaved_rope));
  for (const auto& [text, member] :
       {std::pair("<|image_pad|>", "image_token_id"), std::pair("<|vision_start|>", "vision_start_token_id"),
        std::pair("<|vision_end|>", "vision_end_token_id")})
    writer.set(member, TRY(image_token_id(writer.model(), text)));
  writer.set("vision_config", TRY(vision_config(*writer.model().projector())));
  return ok_status();
}

Result<Json> projector_processor(const GgufModel& projector) {
  Json processor = Json::object();
  processor.set("patch_size", TRY(projector.integer("clip.vision.patch_size")));
  processor.set("temporal_patch_size", kFrames);
  processor.set("merge_size", TRY(projector.optional_integer(kMerge)).value_or(kUsualMerge));
  TRY(copy_colours(projector, "clip.vision.image_mean", "image_mean", processor));
  TRY(copy_colours(projector, "clip.vision.image_std", "image_std", processor));
  for (const char* member : {"min_pixels", "max_pixels"})
    if (const auto pixels = TRY(projector.optional_integer(fmt::format("clip.vision.image_{}", member))))
      processor.set(member, *pixels);
  return processor;
}

}  // namespace tessera
