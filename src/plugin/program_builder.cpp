#include "tessera/plugin/program_builder.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_values.h"
#include "tessera/plugin/kernel.h"

namespace tessera::plugin {
namespace {

ProgramBuilder& builder_of(const tessera_plugin_program* program) {
  return *static_cast<ProgramBuilder*>(program->host);
}

std::int32_t add_value(const tessera_plugin_program* program, const char* name, const tessera_plugin_type* type,
                       std::int32_t* id, tessera_plugin_error* error) {
  ProgramBuilder& to = builder_of(program);
  return to_c(to.keep(to.add_value(name, type, id)), error);
}

std::int32_t keep_node(const tessera_plugin_program* program, std::size_t node, tessera_plugin_error* error) {
  ProgramBuilder& to = builder_of(program);
  return to_c(to.keep(to.keep_node(node)), error);
}

std::int32_t add_instruction(const tessera_plugin_program* program, const tessera_plugin_piece_node* node,
                             const tessera_plugin_kernel* kernel, const char* listing, tessera_plugin_error* error) {
  ProgramBuilder& to = builder_of(program);
  return to_c(to.keep(to.add_instruction(node, kernel, listing)), error);
}

void note(const tessera_plugin_program* program, const char* text) { builder_of(program).note(text); }

}  // namespace

ProgramBuilder::ProgramBuilder(const ir::Graph& piece, const CompilerContext& context)
    : piece_(piece),
      context_(context),
      table_{.size = sizeof(table_),
             .add_value = plugin::add_value,
             .keep_node = plugin::keep_node,
             .add_instruction = plugin::add_instruction,
             .note = plugin::note,
             .host = this} {
  for (std::size_t i = 0; i < piece.values.size(); ++i) {
    const ir::Value& value = piece.values[i];
    program_.values.push_back({.name = value.name,
                               .type = value.type,
                               .kind = value.kind,
                               .of_piece = ir::ValueId(static_cast<std::int32_t>(i))});
  }
  for (const ir::Node& node : piece.nodes) {
    const ir::OpDecl* decl = context.ops.find(node.op);
    if (decl != nullptr && decl->execution == ir::Execution::kView)
      program_.values[node.results[0].index()].view_of = node.operands[0];
  }
}

Result<Program> ProgramBuilder::finish() {
  TRY(std::move(status_));
  return std::move(program_);
}

Status ProgramBuilder::keep(Status status) {
  if (status_.ok() && !status.ok()) status_ = status;
  return status;
}

void ProgramBuilder::note(const char* text) {
  if (text != nullptr) program_.notes.emplace_back(text);
}

Status ProgramBuilder::add_value(const char* name, const tessera_plugin_type* type, std::int32_t* id) {
  if (name == nullptr || type == nullptr || id == nullptr)
    return invalid_argument("add_value: name, type or id is null");
  *id = static_cast<std::int32_t>(program_.values.size());
  ir::Type made = TRY(from_c(*type).with_context(fmt::format("value {}", name)));
  program_.values.push_back({.name = name, .type = std::move(made)});
  return ok_status();
}

Status ProgramBuilder::keep_node(std::size_t node) {
  if (node >= piece_.nodes.size())
    return invalid_argument(fmt::format("keep_node: node {} of {}", node, piece_.nodes.size()));
  const ir::Node& kept = piece_.nodes[node];
  const ir::OpDecl* decl = TRY(context_.ops.get(kept.op));
  // An operator without a kernel needs no instruction, because the memory plan provides the memory of its results.
  if (decl->execution == ir::Execution::kKernel)
    program_.instructions.push_back(make_instruction(kept, *decl, *TRY(context_.kernels.get(kept.op))));
  return ok_status();
}

Result<std::vector<ir::ValueId>> ProgramBuilder::values_of(const std::int32_t* ids, std::size_t count,
                                                           const char* what) const {
  std::vector<ir::ValueId> values;
  if (ids == nullptr && count > 0) return invalid_argument(fmt::format("{} {} at null", count, what));
  for (std::size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= program_.values.size())
      return invalid_argument(fmt::format("{} {} is value {}; there are {}", what, i, ids[i], program_.values.size()));
    values.emplace_back(ids[i]);
  }
  return values;
}

Status ProgramBuilder::add_instruction(const tessera_plugin_piece_node* node, const tessera_plugin_kernel* kernel,
                                       const char* listing) {
  if (node == nullptr || node->op == nullptr) return invalid_argument("add_instruction: node or its op is null");
  const std::string context = fmt::format("instruction {}", node->op);
  ir::Node call{.op = node->op};
  call.operands = TRY(values_of(node->operands, node->num_operands, "operands").with_context(context));
  call.results = TRY(values_of(node->results, node->num_results, "results").with_context(context));
  call.attributes = TRY(from_c(node->attributes, node->num_attributes).with_context(context));
  for (std::size_t i = 0; i < node->num_operands; ++i)
    call.mutates.push_back(node->mutates != nullptr && node->mutates[i] != 0);
  const std::shared_ptr<const Kernel> made = TRY(Kernel::create_unnamed(kernel).with_context(context));
  program_.instructions.push_back(
      {.call = std::move(call),
       .kernel = {.name = std::string(made->name()),
                  .bind = [made](const BindArgs& args) { return made->bind(args); },
                  .workspace_bytes = [made](const BindArgs& args) { return made->workspace_bytes(args); }},
       .listing = listing == nullptr ? "" : listing});
  return ok_status();
}

}  // namespace tessera::plugin
