// Thread pools for work that would block the I/O thread, one for each kind of work. The work is parsing bodies,
// rendering templates, tokenising, preparing images, compiling grammars, and building large answers.
//
// The pool of small texts runs at the server's own priority. The other pools run at kHeavyNice, so that they yield the
// CPU to the small texts, the I/O thread, and the engine's threads if there are too few cores for all.
//
// Threads: used on the I/O thread only, except for the stats of a pool. Jobs run on the pools' threads.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tessera/server/http/call.h"
#include "tessera/server/work/text_pool.h"
#include "tessera/server/work/text_work.h"

namespace tessera {

struct TextPoolsOptions {
  std::size_t cores = 1;    // number of cores of this machine
  std::size_t fetches = 0;  // number of additional threads, which mostly wait while images are fetched
};

class TextPools {
 public:
  // The maximum numbers of waiting jobs in the pool of small texts, and in each other pool. Reading a thousand bodies
  // of kSmallTextBytes takes some seconds, and other work takes longer. Instead of waiting in a longer queue, a client
  // should retry later.
  static constexpr std::size_t kMostSmall = 4096;
  static constexpr std::size_t kMostOthers = 1024;
  static constexpr int kHeavyNice = 10;

  // `api_keys` outlives the object (client_of()).
  TextPools(const TextPoolsOptions& options, std::span<const std::string> api_keys);

  // Runs `run` on a thread of the pool when it is the client's turn. If the pool is full, a call of the client with the
  // most waiting jobs is answered 503 with Retry-After. If a client leaves before its job starts, the job is dropped.
  void post(TextWork work, const Call& call, std::function<void()> run);

  // Posts work that belongs to no call. The work is dropped if the pool is full.
  void post(TextWork work, std::function<void()> run);

  // Returns the pools, one for each TextWork.
  std::span<const std::unique_ptr<TextPool>> all() const { return pools_; }

 private:
  std::span<const std::string> api_keys_;
  std::array<std::unique_ptr<TextPool>, kNumTextWorks> pools_;
};

// Returns the pools' metrics in Prometheus' text format.
std::string pool_metrics(const TextPools& pools);

}  // namespace tessera
