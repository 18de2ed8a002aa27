#include "tessera/compile/fused/fused.h"

#include <fmt/format.h>

#include <map>

#include "tessera/base/base64.h"
#include "tessera/base/log.h"
#include "tessera/compile/eager.h"
#include "tessera/compile/fused/fusion_plan.h"
#include "tessera/compile/joins.h"
#include "tessera/ops/fused/row_kernel_builder.h"
#include "tessera/ops/fused/row_tuning.h"

namespace tessera {
namespace {

// The version of the compiler. It must be incremented when the results of plan_fusion() or of ProgramWriter change.
constexpr int kFusedVersion = 1;

// The machine code of each kernel of a plan. The key is the kernel's text, so equal layers share their kernels.
using Codes = std::map<std::string, std::string>;

// Writes the program of a plan. Leaves out each value that is used only in the group that computes it, because the
// group's kernel does not store such a value.
class ProgramWriter {
 public:
  ProgramWriter(const FusionPlan& plan, const ir::Graph& piece, const CompilerContext& context)
      : plan_(plan), piece_(piece), context_(context), to_(plan.graph.values.size(), kNoValue) {}

  Result<Program> write(const Codes& codes) {
    TRY(write_values());
    for (const FusionStep& step : plan_.steps)
      TRY(step.node == ir::kNoNode ? write_group(step.group, codes) : write_node(plan_.graph.node(step.node)));
    add_joins(program_, mapped(plan_.graph.outputs), context_.kernels.joined());
    return std::move(program_);
  }

 private:
  Status write_values() {
    std::vector<bool> needed = TRY(needed_values());
    const std::vector<ir::ValueId> memory = memory_of_values(plan_.graph, context_.ops);
    std::map<std::string_view, ir::ValueId> of_piece;
    for (std::size_t i = 0; i < piece_.values.size(); ++i)
      of_piece[piece_.values[i].name] = ir::ValueId(static_cast<std::int32_t>(i));
    for (std::size_t i = 0; i < plan_.graph.values.size(); ++i) {
      if (!needed[i]) continue;
      const ir::Value& value = plan_.graph.values[i];
      const auto same = of_piece.find(value.name);
      to_[i] = ir::ValueId(static_cast<std::int32_t>(program_.values.size()));
      program_.values.push_back({.name = value.name,
                                 .type = value.type,
                                 .kind = value.kind,
                                 .of_piece = same == of_piece.end() ? kNoValue : same->second});
      if (memory[i].index() != i) program_.values.back().view_of = to_[memory[i].index()];
    }
    return ok_status();
  }

  Result<std::vector<bool>> needed_values() const {
    std::vector<bool> needed(plan_.graph.values.size(), false);
    const auto need = [&](const std::vector<ir::ValueId>& values) {
      for (const ir::ValueId value : values) needed[value.index()] = true;
    };
    for (const FusionStep& step : plan_.steps) {
      need(step.node == ir::kNoNode ? step.group.operands : plan_.graph.node(step.node).operands);
      need(step.node == ir::kNoNode ? step.group.results : plan_.graph.node(step.node).results);
    }
    need(plan_.graph.outputs);
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (plan_.graph.values[i].kind != ir::ValueKind::kResult) needed[i] = true;
    const std::vector<ir::ValueId> memory = memory_of_values(plan_.graph, context_.ops);
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) needed[memory[i].index()] = true;
    return needed;
  }

  std::vector<ir::ValueId> mapped(const std::vector<ir::ValueId>& values) const {
    std::vector<ir::ValueId> result;
    for (const ir::ValueId value : values) result.push_back(to_[value.index()]);
    return result;
  }

  Status write_node(const ir::Node& node) {
    ir::Node call = node;
    call.operands = mapped(node.operands);
    call.results = mapped(node.results);
    program_.instructions.push_back(
        make_instruction(std::move(call), *TRY(context_.ops.get(node.op)), *TRY(context_.kernels.get(node.op))));
    return ok_status();
  }

  Status write_group(const LoweredGroup& group, const Codes& codes) {
    const RowKernelBuilder& builder = *context_.row_kernels;
    std::string listing = to_text(group.kernel);
    std::shared_ptr<const RowKernelCode>& loaded = loaded_[listing];
    if (loaded == nullptr)
      loaded = TRY(builder.load(group.kernel, codes.at(listing), context_.device).with_context(group.name));
    program_.instructions.push_back(
        {.call = {.op = group.name,
                  .operands = mapped(group.operands),
                  .mutates = group.mutates,
                  .results = mapped(group.results)},
         .kernel = {.name = std::string(builder.name()),
                    .bind = [code = loaded, name = group.name, key = row_kernel_key(builder, group.kernel)](
                                const BindArgs& args) { return bind_row_kernel(code, key, name, args); },
                    .workspace_bytes = [code = loaded](const BindArgs& args) { return code->workspace_bytes(args); }},
         .rows = ir::RowUse::kByRow,
         .listing = std::move(listing)});
    return ok_status();
  }

  const FusionPlan& plan_;
  const ir::Graph& piece_;
  const CompilerContext& context_;
  std::vector<ir::ValueId> to_;  // for each value of the plan's graph, the program's value; kNoValue if left out
  std::map<std::string, std::shared_ptr<const RowKernelCode>> loaded_;  // the key is the kernel's text
  Program program_;
};

class FusedCompiler final : public Compiler {
 public:
  FusedCompiler(const CompilerContext& context, std::string version)
      : Compiler(context), builder_(*context.row_kernels), version_(std::move(version)) {}

  std::string_view name() const override { return kFusedCompiler; }
  Hash128 hash() const override {
    Hasher hasher;
    hasher.add(kFusedVersion);
    hasher.add(builder_.name());
    hasher.add(version_);
    return hasher.finish();
  }

  Result<CompilerOutput> compile(const ir::Graph& piece) const override {
    Result<CompilerOutput> fused = fuse(piece);
    if (fused.ok()) return fused;
    log_warn("compile", "{} is not fused, its operators run one by one: {}", piece.name, fused.status().to_string());
    CompilerOutput eager{.program = TRY(eager_program(piece, context().ops, context().kernels))};
    eager.program.notes.push_back("not fused: " + fused.status().message());
    return eager;
  }

  Result<Program> load(const ir::Graph& piece, const Json& handle) const override {
    const FusionPlan plan = TRY(plan_fusion(piece, context().ops));
    const Json* kernels = handle.find("kernels");
    if (kernels == nullptr || !kernels->is_object()) return data_loss("the handle has no kernels");
    Codes codes;
    for (const auto& [listing, source] : TRY(sources(plan))) {
      const Json* text = kernels->find(key_of(source));
      std::optional<std::string> code =
          text != nullptr && text->is_string() ? from_base64(text->as_string()) : std::nullopt;
      if (!code) return data_loss("the handle lacks the code of a kernel");
      codes[listing] = *std::move(code);
    }
    return ProgramWriter(plan, piece, context()).write(codes);
  }

 private:
  Result<CompilerOutput> fuse(const ir::Graph& piece) const {
    const FusionPlan plan = TRY(plan_fusion(piece, context().ops));
    Json kernels = Json::object();
    Codes codes;
    for (const auto& [listing, source] : TRY(sources(plan))) {
      codes[listing] = TRY(builder_.compile(source, context().device));
      kernels.set(key_of(source), to_base64(codes[listing]));
    }
    Json handle = Json::object();
    handle.set("kernels", std::move(kernels));
    return CompilerOutput{.program = TRY(ProgramWriter(plan, piece, context()).write(codes)),
                          .handle = std::move(handle)};
  }

  // Returns the source of each distinct kernel. The key is the kernel's text.
  Result<std::map<std::string, std::string>> sources(const FusionPlan& plan) const {
    std::map<std::string, std::string> all;
    for (const FusionStep& step : plan.steps) {
      if (step.node != ir::kNoNode) continue;
      std::string& source = all[to_text(step.group.kernel)];
      if (source.empty()) source = TRY(builder_.source(step.group.kernel).with_context(step.group.name));
    }
    return all;
  }

  static std::string key_of(const std::string& source) {
    Hasher hasher;
    hasher.add(source);
    return hasher.finish().hex();
  }

  const RowKernelBuilder& builder_;
  std::string version_;
};

}  // namespace

Result<std::unique_ptr<Compiler>> make_fused_compiler(const CompilerContext& context) {
  const RowKernelBuilder* builder = context.row_kernels;
  const auto refused = [](Status status) {
    return std::move(status).with_context(fmt::format("compiler {}", kFusedCompiler));
  };
  if (builder == nullptr)
    return refused(unimplemented(
        fmt::format("device {} generates no kernels; compile with eager", context.device.properties().type)));
  Result<std::string> version = builder->version(context.device);
  if (!version.ok()) return refused(version.status());
  return std::make_unique<FusedCompiler>(context, *std::move(version));
}

}  // namespace tessera
