// A compiler turns the graph of a piece into a Program. A piece is a part of the model's graph between two operators at
// which the graph is cut. The compiler *eager* runs each operator by its registered kernel. Other compilers may fuse
// operators, remove values and generate code. A new compiler registers in a CompilerRegistry (compiler_registry.h).
//
// Later processes can use a compiler's result again. compile() returns a handle together with the program. In a later
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
  bool deterministic = false;  // whether kernels must give a row the same bits in every batch
  // Buckets of at least this many tokens run with two-batch overlap, in halves of their rows (halves.h). If 0, no
  // bucket runs in halves.
  std::int64_t halves_from = 0;
};

// The objects that compilers work with. They must outlive the compilers.
struct CompilerContext {
  Device& device;
  const ir::OpTable& ops;
  const KernelTable& kernels;  // the device's kernels
  CompilerOptions options{};
  const RowKernelBuilder* row_kernels = nullptr;  // the device's generator of kernels, or null if it has none
  ProfileCache* cache = nullptr;                  // keeps handles and tuning results, unless it is null
};

struct CompilerOutput {
  Program program;
  Json handle{};  // what load() needs to make the same program; null if the program cannot be kept
};

// The name of the compiler that make_fused_compiler() makes (fused/fused.h).
inline constexpr std::string_view kFusedCompiler = "fused";

class Compiler {
 public:
  explicit Compiler(const CompilerContext& context) : context_(context) {}
  virtual ~Compiler() = default;

  // Returns the name under which the compiler is registered.
  virtual std::string_view name() const = 0;
  // Returns a hash of everything, apart from the piece, that determines the compiler's programs: the compiler's
  // version, the options, the device and the libraries. A handle is loaded only if this hash is still the same.
  virtual Hash128 hash() const = 0;
  // Compiles a part of a verified graph. The program can be bound for every bucket, and for every piece of the same
  // structure.
  virtual Result<CompilerOutput> compile(const ir::Graph& piece) const = 0;
  // Makes the program from a handle. The handle was read from disk, so it may contain anything. If load() returns an
  // error, the piece is compiled again.
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
