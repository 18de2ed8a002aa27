// A compiler turns a piece's graph into a Program. *eager* runs each operator by its registered kernel; other compilers
// may fuse operators, remove values and generate code. A new one registers in a CompilerRegistry (compiler_registry.h).
//
// What a compiler makes can be kept from process to process: compile() returns a handle beside the program, and load()
// makes the program of a piece and the handle that an earlier process wrote. compile_piece() does both through the
// cache.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/hash.h"
#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/compile/profile_cache.h"
#include "tessera/compile/program.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

class RowKernelBuilder;

struct CompilerOptions {
  bool deterministic = false;    // kernels must give a row the same bits whatever the batch
  std::int64_t halves_from = 0;  // programs run in halves in buckets of so many tokens (halves.h); 0: in none
};

// What a compiler is made with; everything outlives it.
struct CompilerContext {
  Device& device;
  const ir::OpTable& ops;
  const KernelTable& kernels;  // of the device
  CompilerOptions options{};
  const RowKernelBuilder* row_kernels = nullptr;  // of the device: generates kernels; null: there are no generated ones
  ProfileCache* cache = nullptr;                  // of handles and of what was tuned; null: nothing is kept
};

struct CompilerOutput {
  Program program;
  Json handle{};  // what load() needs to make the same program again; null: it is not kept
};

inline constexpr std::string_view kFusedCompiler = "fused";  // the name of make_fused_compiler's (fused/fused.h)

class Compiler {
 public:
  explicit Compiler(const CompilerContext& context) : context_(context) {}
  virtual ~Compiler() = default;

  // The name it is registered under.
  virtual std::string_view name() const = 0;
  // Of all that its programs depend on beside the piece: its version, options, the device, libraries. A handle is
  // loaded only where this is equal.
  virtual Hash128 hash() const = 0;
  // `piece` is a part of a verified graph. The program serves every bucket, and every piece of the same structure.
  virtual Result<CompilerOutput> compile(const ir::Graph& piece) const = 0;
  // The handle is from disk: anything may be in it. On an error the piece is compiled anew.
  virtual Result<Program> load(const ir::Graph& piece, const Json& handle) const = 0;

  const CompilerContext& context() const { return context_; }

 private:
  CompilerContext context_;
};

// Pieces of equal keys differ in names alone: one program serves them all.
std::string structure_key(const ir::Graph& piece);

struct CompiledPiece {
  Program program;
  bool loaded = false;  // made from a handle that was in the cache before
};
// Loads the piece from the cache, or compiles it and keeps its handle, from which equal pieces are made later on. The
// program is checked (check_program.h); the error names the compiler.
Result<CompiledPiece> compile_piece(const Compiler& compiler, const ir::Graph& piece);

}  // namespace tessera
