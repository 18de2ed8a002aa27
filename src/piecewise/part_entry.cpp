#include "tessera/piecewise/part_entry.h"

#include <fmt/format.h>

namespace tessera {
namespace {

class Entries {
 public:
  Entries(const CompiledForward& forward, const ir::Bucket& bucket, std::span<const std::int64_t> arena_offsets,
          const BoundForward* bound)
      : forward_(forward), bucket_(bucket), arena_offsets_(arena_offsets), bound_(bound) {}

  Result<PartEntry> of_part(std::size_t p) const {
    const CompiledPart& part = forward_.parts[p];
    const bool runs = !part.program->instructions.empty();
    PartEntry entry{.part = part.name,
                    .runtime_shape = bucket_,
                    .need_to_compile = runs,
                    .use_graph = part.recordable(),
                    .compiled = bound_ != nullptr};
    if (bound_ != nullptr && runs)
      entry.runnable = bound_->has_graph(p) ? PartEntry::Runnable::kGraph : PartEntry::Runnable::kKernels;
    if (bound_ != nullptr) entry.num_finished_warmup = bound_->num_warm_ups();
    for (const ir::ValueId output : part.outputs) entry.outputs.push_back(TRY(value(part, output.index())));
    for (std::size_t v = 0; v < part.slots.size(); ++v)
      if (part.program->values[v].kind == ir::ValueKind::kInput) entry.inputs.push_back(TRY(value(part, v)));
    return entry;
  }

 private:
  Result<EntryValue> value(const CompiledPart& part, std::size_t index) const {
    const auto slot = static_cast<std::size_t>(part.slots[index]);
    const std::int64_t bytes = TRY(ir::size_bytes(part.program->values[index].type, bucket_));
    EntryValue value{.name = part.value_names[index],
                     .bytes = bytes,
                     .arena_offset = arena_offsets_.empty() ? -1 : arena_offsets_[slot]};
    if (bound_ != nullptr) value.address = bound_->addresses().slots[slot];
    return value;
  }

  const CompiledForward& forward_;
  const ir::Bucket& bucket_;
  std::span<const std::int64_t> arena_offsets_;
  const BoundForward* bound_;
};

std::string values_text(std::span<const EntryValue> values) {
  std::string text;
  for (const EntryValue& value : values) {
    text += fmt::format("{}%{} {} bytes", text.empty() ? "" : ", ", value.name, value.bytes);
    if (value.arena_offset >= 0) {
      text += fmt::format(" at arena+{}", value.arena_offset);
    } else if (value.address) {
      text += fmt::format(" at {}", address_text(value.address));
    }
  }
  return text.empty() ? "-" : text;
}

const char* yes_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

std::string_view runnable_name(PartEntry::Runnable runnable) {
  switch (runnable) {
    case PartEntry::Runnable::kNothing: return "nothing";
    case PartEntry::Runnable::kKernels: return "kernels";
    case PartEntry::Runnable::kGraph: return "graph";
  }
  return "";
}

Result<std::vector<PartEntry>> part_entries(const CompiledForward& forward, const ForwardMemory& memory,
                                            const ir::Bucket& bucket, const BoundForward* bound) {
  SlotPlan planned;
  if (bound == nullptr) planned = TRY(memory.plan(bucket));
  const Entries entries(forward, bucket, bound == nullptr ? planned.offsets : bound->addresses().arena_offsets, bound);
  std::vector<PartEntry> made;
  for (std::size_t p = 0; p < forward.parts.size(); ++p) made.push_back(TRY(entries.of_part(p)));
  return made;
}

std::string to_text(std::span<const PartEntry> entries) {
  std::string text;
  for (const PartEntry& entry : entries) {
    text += fmt::format("{} at {}\n", entry.part, entry.runtime_shape.to_string());
    text += fmt::format("  need to compile: {}, use graph: {}, compiled: {}, runnable: {}, warm-ups: {}\n",
                        yes_no(entry.need_to_compile), yes_no(entry.use_graph), yes_no(entry.compiled),
                        runnable_name(entry.runnable), entry.num_finished_warmup);
    text += fmt::format("  inputs:  {}\n  outputs: {}\n", values_text(entry.inputs), values_text(entry.outputs));
  }
  return text;
}

}  // namespace tessera
