#include "tessera/compile/compiler.h"

#include <fmt/format.h>

#include "tessera/base/log.h"
#include "tessera/compile/check_program.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

constexpr std::string_view kCacheKind = "programs";

Hash128 cache_key(const Compiler& compiler, const ir::Graph& piece) {
  Hasher hasher;
  hasher.add(compiler.name());
  const Hash128 of_compiler = compiler.hash();
  hasher.add(of_compiler.high);
  hasher.add(of_compiler.low);
  hasher.add(structure_key(piece));
  return hasher.finish();
}

Result<Program> load_piece(const Compiler& compiler, const ir::Graph& piece, const Json& handle) {
  Program program = TRY(compiler.load(piece, handle));
  TRY(check_program(program, piece, compiler.context().ops));
  return program;
}

Result<CompiledPiece> load_or_compile(const Compiler& compiler, const ir::Graph& piece) {
  ProfileCache* const cache = compiler.context().cache;
  const Hash128 key = cache == nullptr ? Hash128{} : cache_key(compiler, piece);
  if (cache != nullptr) {
    const Json* const made = cache->made_here(kCacheKind, key);
    const std::optional<Json> stored = made == nullptr ? cache->load(kCacheKind, key) : std::nullopt;
    if (const Json* const handle = stored ? &*stored : made; handle != nullptr) {
      Result<Program> loaded = load_piece(compiler, piece, *handle);
      if (loaded.ok()) return CompiledPiece{.program = *std::move(loaded), .loaded = made == nullptr};
      log_warn("compile", "{}: its cached program cannot be loaded and is compiled again: {}", piece.name,
               loaded.status().to_string());
    }
  }
  CompilerOutput made = TRY(compiler.compile(piece));
  TRY(check_program(made.program, piece, compiler.context().ops));
  if (cache != nullptr && !made.handle.is_null()) cache->keep(kCacheKind, key, made.handle);
  return CompiledPiece{.program = std::move(made.program)};
}

}  // namespace

std::string structure_key(const ir::Graph& piece) {
  ir::Graph unnamed = piece;
  unnamed.name = "piece";
  for (std::size_t i = 0; i < unnamed.values.size(); ++i) unnamed.values[i].name = fmt::format("{}", i);
  return ir::to_text(unnamed);
}

Result<CompiledPiece> compile_piece(const Compiler& compiler, const ir::Graph& piece) {
  return load_or_compile(compiler, piece).with_context(fmt::format("compiler {}", compiler.name()));
}

}  // namespace tessera
