// A compiler turns a piece's graph into a Program. *eager* runs each operator by its registered kernel; other compilers
// may fuse operators, remove values and generate code. A new compiler registers in a CompilerRegistry
// (compiler_registry.h).
//
// A compiler's result can be kept for later processes: compile() returns a handle together with the program. In a later
// process, load() makes the program from the piece and that handle. compile_piece() calls load() if the cache has a
// handle, and compile() otherwise.
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
  bool deterministic = false;    // kernels must give a row the same bits in every batch
  std::int64_t halves_from = 0;  // buckets of this many tokens or more run in halves (halves.h); 0: no bucket does
};

// The objects that compilers work with. They must outlive the compilers.
struct CompilerContext {
  Device& device;
  const ir::OpTable& ops;
  const KernelTable& kernels;  // the device's kernels
  CompilerOptions options{};
  const RowKernelBuilder* row_kernels = nullptr;  // the device's generator of kernels; null: it has none
  ProfileCache* cache = nullptr;                  // keeps handles and tuning results; null: nothing is kept
};

struct CompilerOutput {
  Program program;
  Json handle{};  // what load() needs to make the same program; null: the program cannot be kept
};

// The name of the compiler that make_fused_compiler() makes (fused/fused.h).
inline constexpr std::string_view kFusedCompiler = "fused";

class Compiler {
 public:
  explicit Compiler(const CompilerContext& context) : context_(context) {}
  virtual ~Compiler() = default;

  // Returns the name under which the compiler is registered.
  virtual std::string_view name() const = 0;
  // Returns a hash of what the compiler's programs depend on, apart from the piece: the compiler's version, the
  // options, the device and the libraries. A handle is loaded only if this hash is still the same.
  virtual Hash128 hash() const = 0;
  // Compiles a part of a verified graph. The program can be bound for every bucket, and for every piece of the same
  // structure.
  virtual Result<CompilerOutput> compile(const ir::Graph& piece) const = 0;
  // Makes the program from a handle. The handle is from disk and may hold anything. After an error the piece is
  // compiled again.
  virtual Result<Program> load(const ir::Graph& piece, const Json& handle) const = 0;

  const CompilerContext& context() const { return context_; }

 private:
  CompilerContext context_;
};

// Returns a key of the piece's structure. Pieces with equal keys differ only in names, so that one program is enough
// for all of them.
std::string structure_key(const ir::Graph& piece);

struct CompiledPiece {
  Program program;
  bool loaded = false;  // whether the handle was read from the cache folder, so that nothing was compiled
};
// Loads the piece's program from the cache, or compiles the piece and saves its handle in the cache. Checks the program
// (check_program.h). Errors name the compiler.
Result<CompiledPiece> compile_piece(const Compiler& compiler, const ir::Graph& piece);

}  // namespace tessera
