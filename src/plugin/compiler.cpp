#include "tessera/plugin/compiler.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_piece.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/program_builder.h"

namespace tessera::plugin {
namespace {

class PluginCompiler final : public Compiler {
 public:
  PluginCompiler(std::shared_ptr<const CompilerTable> table, std::string own_hash, const CompilerContext& context)
      : Compiler(context), table_(std::move(table)), own_hash_(std::move(own_hash)) {}

  std::string_view name() const override { return table_->name(); }

  Hash128 hash() const override {
    const DeviceProperties& device = context().device.properties();
    Hasher hasher;
    hasher.add(own_hash_);
    hasher.add(device.type);
    hasher.add(device.name);
    hasher.add(context().options.deterministic);
    return hasher.finish();
  }

  Result<CompilerOutput> compile(const ir::Graph& piece) const override {
    const CPiece c = TRY(CPiece::create(piece, device(), context().options.deterministic));
    ProgramBuilder builder(piece, context());
    TextSink handle;
    const tessera_plugin_compiler& table = table_->get();
    TRY(call([&](tessera_plugin_error* error) {
      return table.compile(table.self, c.get(), builder.table(), handle.get(), error);
    }));
    CompilerOutput output{.program = TRY(builder.finish())};
    const std::string text = handle.take();
    if (!text.empty() && table.load != nullptr) output.handle = TRY(Json::parse(text, "its handle"));
    return output;
  }

  Result<Program> load(const ir::Graph& piece, const Json& handle) const override {
    const tessera_plugin_compiler& table = table_->get();
    if (table.load == nullptr) return unimplemented("it writes no handles");
    const CPiece c = TRY(CPiece::create(piece, device(), context().options.deterministic));
    ProgramBuilder builder(piece, context());
    const std::string text = handle.dump();
    TRY(call([&](tessera_plugin_error* error) {
      return table.load(table.self, c.get(), text.c_str(), builder.table(), error);
    }));
    return builder.finish();
  }

 private:
  const std::string& device() const { return context().device.properties().type; }
  std::shared_ptr<const CompilerTable> table_;
  std::string own_hash_;
};

Result<std::string> read_hash(const CompilerTable& table) {
  TextSink hash;
  TRY(call([&](tessera_plugin_error* /*error*/) {
        table.get().hash(table.get().self, hash.get());
        return TESSERA_PLUGIN_OK;
      }).with_context(fmt::format("compiler {}: hash", table.name())));
  return hash.take();
}

}  // namespace

Result<std::shared_ptr<const CompilerTable>> CompilerTable::create(const tessera_plugin_compiler* given) {
  const tessera_plugin_compiler table = TRY(copy_table(given, "compiler"));
  TRY(check_word(table.name, "compiler"));
  const std::string context = fmt::format("compiler {}", table.name);
  TRY(check_set(table.hash, "table", "hash").with_context(context));
  TRY(check_set(table.compile, "table", "compile").with_context(context));
  return std::shared_ptr<const CompilerTable>(new CompilerTable(table));
}

Result<std::unique_ptr<Compiler>> make_plugin_compiler(std::shared_ptr<const CompilerTable> table,
                                                       const CompilerContext& context) {
  std::string hash = TRY(read_hash(*table));
  return std::make_unique<PluginCompiler>(std::move(table), std::move(hash), context);
}

}  // namespace tessera::plugin
