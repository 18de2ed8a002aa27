#include "tessera/compile/program_text.h"

#include <fmt/format.h>

#include "tessera/ir/text.h"

namespace tessera {
namespace {

std::string value_text(const Program& program, const ProgramValue& value) {
  std::string text = fmt::format("{} %{}: {}", ir::value_kind_name(value.kind), value.name, value.type.to_string());
  if (value.view_of != kNoValue) text += fmt::format(", a view of %{}", program.value(value.view_of).name);
  return text + "\n";
}

Result<std::int64_t> bytes_of(const Program& program, const ir::Node& call, const ir::Bucket& bucket) {
  std::int64_t bytes = 0;
  for (const std::vector<ir::ValueId>* ids : {&call.operands, &call.results}) {
    for (const ir::ValueId id : *ids) {
      const ProgramValue& value = program.value(id);
      if (value.kind == ir::ValueKind::kState) continue;
      bytes += TRY(ir::size_bytes(value.type, bucket).with_context("%" + value.name));
    }
  }
  return bytes;
}

std::string grid_text(const std::vector<ir::Dim>& grid) {
  std::string text;
  for (const ir::Dim& dim : grid) text += (text.empty() ? "" : ", ") + dim.to_string();
  return text.empty() ? "" : fmt::format(", grid [{}]", text);
}

}  // namespace

Result<std::string> to_text(const Program& program, const ir::Bucket& bucket) {
  std::string text = fmt::format("program of {} instruction{} at {}\n", program.instructions.size(),
                                 program.instructions.size() == 1 ? "" : "s", bucket.to_string());
  for (const std::string& note : program.notes) text += note + "\n";
  ir::Graph names;  // calls are printed as nodes of this graph, which has the same values
  for (const ProgramValue& value : program.values) {
    text += value_text(program, value);
    names.values.push_back({.name = value.name, .type = value.type, .kind = value.kind});
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    text += fmt::format("{}: {} by {}, {} bytes{}\n   {}\n", i, instruction.call.op, instruction.kernel.name,
                        TRY(bytes_of(program, instruction.call, bucket)), grid_text(instruction.grid),
                        ir::to_text(names, instruction.call));
    std::string_view listing = instruction.listing;
    for (std::size_t end; (end = listing.find('\n')) != std::string_view::npos; listing.remove_prefix(end + 1))
      text += fmt::format("     {}\n", listing.substr(0, end));
    for (const Join& join : instruction.joins)
      text += fmt::format("   up to {} row{}: with the next {} by {}\n", join.most_rows, join.most_rows == 1 ? "" : "s",
                          join.instructions - 1, join.name);
  }
  for (const Halves& run : program.halves)
    text +=
        fmt::format("from {} tokens: {} to {} in two halves of their rows\n", run.least_tokens, run.first, run.end - 1);
  return text;
}

}  // namespace tessera
