// Converts the tensors of a projector, which is a GGUF file with a vision tower (gguf_projector.h), to the tensors that
// the vision tower has in a Hugging Face checkpoint.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/gguf/projector_types.h"
#include "tessera/model/gguf/stored_form.h"

namespace tessera {
namespace {

// A tensor's name in the file and in a checkpoint. In tables for blocks, both names lack the part up to the block's
// number.
struct NamePair {
  const char* gguf;
  const char* own;
};

constexpr NamePair kQwen2Whole[] = {
    {"v.post_ln.weight", "merger.ln_q.weight"}, {"v.post_ln.bias", "merger.ln_q.bias"},
    {"mm.0.weight", "merger.mlp.0.weight"},     {"mm.0.bias", "merger.mlp.0.bias"},
    {"mm.2.weight", "merger.mlp.2.weight"},     {"mm.2.bias", "merger.mlp.2.bias"},
};
constexpr NamePair kQwen2Block[] = {
    {"ln1.weight", "norm1.weight"},          {"ln1.bias", "norm1.bias"},
    {"ln2.weight", "norm2.weight"},          {"ln2.bias", "norm2.bias"},
    {"attn_out.weight", "attn.proj.weight"}, {"attn_out.bias", "attn.proj.bias"},
    {"ffn_up.weight", "mlp.fc1.weight"},     {"ffn_up.bias", "mlp.fc1.bias"},
    {"ffn_down.weight", "mlp.fc2.weight"},   {"ffn_down.bias", "mlp.fc2.bias"},
};
constexpr NamePair kQwen25Whole[] = {
    {"v.post_ln.weight", "merger.ln_q.weight"}, {"mm.0.weight", "merger.mlp.0.weight"},
    {"mm.0.bias", "merger.mlp.0.bias"},         {"mm.2.weight", "merger.mlp.2.weight"},
    {"mm.2.bias", "merger.mlp.2.bias"},
};
constexpr NamePair kQwen25Block[] = {
    {"ln1.weight", "norm1.weight"},
    {"ln2.weight", "norm2.weight"},
    {"attn_out.weight", "attn.proj.weight"},
    {"attn_out.bias", "attn.proj.bias"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
};
constexpr NamePair kQwen3Whole[] = {
    {"v.patch_embd.bias", "patch_embed.proj.bias"}, {"v.position_embd.weight", "pos_embed.weight"},
    {"v.post_ln.weight", "merger.norm.weight"},     {"v.post_ln.bias", "merger.norm.bias"},
    {"mm.0.weight", "merger.linear_fc1.weight"},    {"mm.0.bias", "merger.linear_fc1.bias"},
    {"mm.2.weight", "merger.linear_fc2.weight"},    {"mm.2.bias", "merger.linear_fc2.bias"},
};
constexpr NamePair kQwen3Block[] = {
    {"ln1.weight", "norm1.weight"},
    {"ln1.bias", "norm1.bias"},
    {"ln2.weight", "norm2.weight"},
    {"ln2.bias", "norm2.bias"},
    {"attn_out.weight", "attn.proj.weight"},
    {"attn_out.bias", "attn.proj.bias"},
    {"ffn_up.weight", "mlp.linear_fc1.weight"},
    {"ffn_up.bias", "mlp.linear_fc1.bias"},
    {"ffn_down.weight", "mlp.linear_fc2.weight"},
    {"ffn_down.bias", "mlp.linear_fc2.bias"},
};
constexpr NamePair kDeepstackLevel[] = {
    {"norm.weight", "norm.weight"},  {"norm.bias", "norm.bias"},          {"fc1.weight", "linear_fc1.weight"},
    {"fc1.bias", "linear_fc1.bias"}, {"fc2.weight", "linear_fc2.weight"}, {"fc2.bias", "linear_fc2.bias"},
};

struct TowerNames {
  const char* prefix;  // before the names of the tower's tensors in a checkpoint
  std::span<const NamePair> whole;
  std::span<const NamePair> block;
};
constexpr TowerNames kQwen2{.prefix = "visual.", .whole = kQwen2Whole, .block = kQwen2Block};
constexpr TowerNames kQwen25{.prefix = "visual.", .whole = kQwen25Whole, .block = kQwen25Block};
constexpr TowerNames kQwen3{.prefix = "model.visual.", .whole = kQwen3Whole, .block = kQwen3Block};

class TowerTranslator {
 public:
  TowerTranslator(const GgufModel& projector, const TowerNames& names) : projector_(projector), names_(names) {}

  Result<TensorFile> translate() {
    file_.path = projector_.path();
    TRY(add_patch_embedding());
    for (const NamePair& pair : names_.whole) TRY(add(pair.gguf, pair.own));
    const std::int64_t blocks = TRY(projector_.integer("clip.vision.block_count"));
    std::int64_t level = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      TRY(add_block(fmt::format("v.blk.{}.", block), fmt::format("blocks.{}.", block)));
      const std::string deepstack = fmt::format("v.deepstack.{}.", block);
      if (projector_.find_tensor(deepstack + kDeepstackLevel[0].gguf) == nullptr) continue;
      for (const NamePair& pair : kDeepstackLevel)
        TRY(add(deepstack + pair.gguf, fmt::format("deepstack_merger_list.{}.{}", level, pair.own)));
      ++level;
    }
    add_others();
    return std::move(file_);
  }

 private:
  Result<const GgufTensor*> find(const std::string& name) {
    const GgufTensor* tensor = projector_.find_tensor(name);
    if (tensor == nullptr)
      return data_loss(fmt::format("{}: tensor {} is missing; accepted: all tensors of a {} with {} blocks",
                                   projector_.path(), name, TRY(projector_type(projector_)),
                                   TRY(projector_.integer("clip.vision.block_count"))));
    TRY(check_readable(projector_.path(), *tensor));
    used_.insert(name);
    return tensor;
  }

  Status add(const std::string& name, const std::string& own) {
    const GgufTensor* tensor = TRY(find(name));
    file_.tensors.push_back(same_elements(names_.prefix + own, *tensor, tensor->shape));
    return ok_status();
  }

  // Adds the weight of the patch embedding. The file has a tensor [hidden, colours, height, width] for each of the two
  // frames of a patch. The checkpoint has one tensor [hidden, colours, frames, height, width].
  Status add_patch_embedding() {
    const GgufTensor* first = TRY(find("v.patch_embd.weight"));
    const GgufTensor* second = TRY(find("v.patch_embd.weight.1"));
    for (const GgufTensor* frame : {first, second})
      if (frame->shape.size() != 4 || frame->shape != first->shape || !plain_dtype(frame->type))
        return wrong_shape(projector_.path(), *frame,
                           "[hidden, colours, height, width] of F32, F16 or BF16, equal for both frames");
    const std::vector<std::int64_t>& s = first->shape;
    const std::int64_t pixels = s[2] * s[3];
    StoredTensor stored{.name = names_.prefix + std::string("patch_embed.proj.weight"),
                        .dtype = StoredDtype::kF32,
                        .shape = {s[0], s[1], 2, s[2], s[3]},
                        .data = {}};
    stored.made = make_rows({.matrices = {StoredBlocks(first->type, first->data.data(), pixels),
                                          StoredBlocks(second->type, second->data.data(), pixels)}},
                            {});
    file_.tensors.push_back(std::move(stored));
    return ok_status();
  }

  Status add_block(const std::string& block, const std::string& own) {
    const bool swapped = TRY(has_swapped_mlp(block));
    for (const NamePair& pair : names_.block) {
      std::string name = pair.gguf;
      if (swapped && name.starts_with("ffn_up")) {
        name.replace(0, 6, "ffn_down");
      } else if (swapped && name.starts_with("ffn_down")) {
        name.replace(0, 8, "ffn_up");
      }
      TRY(add(block + name, own + pair.own));
    }
    for (const char* kind : {".weight", ".bias"}) TRY(add_qkv(block, own, kind));
    return ok_status();
  }

  // Returns whether the names of an MLP's two matrices are exchanged, as in files of older converters. If they are
  // exchanged, the matrix "down" has as many columns as the tower's hidden size, and "up" does not.
  Result<bool> has_swapped_mlp(const std::string& block) const {
    const std::int64_t width = TRY(projector_.integer("clip.vision.embedding_length"));
    const auto takes_width = [&](const char* name) -> std::optional<bool> {
      const GgufTensor* matrix = projector_.find_tensor(block + name);
      if (matrix == nullptr || matrix->shape.size() != 2) return std::nullopt;
      return matrix->shape[1] == width;
    };
    return takes_width("ffn_down.weight") == true && takes_width("ffn_up.weight") == false;
  }

  // Adds the joint projection of queries, keys and values. The file has it as one tensor or as three.
  Status add_qkv(const std::string& block, const std::string& own, const std::string& kind) {
    const std::string joint = block + "attn_qkv" + kind;
    const std::string name = own + "attn.qkv" + kind;
    if (projector_.find_tensor(joint) != nullptr) return add(joint, name);
    std::vector<std::shared_ptr<const TensorElements>> parts;
    const GgufTensor* queries = TRY(find(block + "attn_q" + kind));
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      const GgufTensor* tensor = TRY(find(block + part + kind));
      if (tensor->shape != queries->shape)
        return wrong_shape(projector_.path(), *tensor, shape_text(queries->shape) + ", that of " + queries->name);
      parts.push_back(make_rows({.matrices = {matrix_of(*tensor)}}, {}));
    }
    StoredTensor stored{.name = names_.prefix + name, .dtype = StoredDtype::kF32, .shape = queries->shape, .data = {}};
    std::int64_t elements = 1;
    for (const std::int64_t size : queries->shape) elements *= size;
    stored.shape[0] *= std::ssize(parts);
    stored.made = make_stack(std::move(parts), elements);
    file_.tensors.push_back(std::move(stored));
    return ok_status();
  }

  // Adds the file's other readable tensors, which the tower does not use, under their names in the file. The engine
  // then logs them as unread tensors.
  void add_others() {
    for (const GgufFile& file : projector_.files()) {
      if (file.mapping() != nullptr) file_.mappings.push_back(file.mapping());
      for (const GgufTensor& tensor : file.tensors())
        if (!used_.contains(tensor.name) && check_readable(projector_.path(), tensor).ok())
          file_.tensors.push_back(same_elements(tensor.name, tensor, tensor.shape));
    }
  }

  const GgufModel& projector_;
  const TowerNames& names_;
  std::set<std::string> used_;  // names of the file's tensors that the tower uses
  TensorFile file_;
};

}  // namespace

Result<TensorFile> read_projector_tensors(const GgufModel& projector) {
  const std::string type = TRY(projector_type(projector));
  const TowerNames& names = type == kQwen2Projector ? kQwen2 : type == kQwen25Projector ? kQwen25 : kQwen3;
  return TowerTranslator(projector, names).translate();
}

}  // namespace tessera
