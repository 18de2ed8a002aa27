// The pools of threads for work that would block the I/O thread, one for each kind, and how calls get there: parsing
// bodies, rendering templates, tokenising, preparing images, compiling grammars, building large answers.
//
// The pool of small texts runs at the server's own priority. The others have kHeavyNice, so that they leave the CPU to
// it, to the I/O thread, and to the engine's threads where there are not cores enough for all.
//
// Threads: the I/O thread, but for stats of a pool. Jobs run on the pools' threads.
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
  std::size_t cores = 1;    // of this machine
  std::size_t fetches = 0;  // threads that wait for other servers' images, beside those that work
};

class TextPools {
 public:
  // A thousand bodies of kSmallTextBytes are read in some seconds, other work takes longer: who comes behind so much
  // had better ask again.
  static constexpr std::size_t kMostSmall = 4096;
  static constexpr std::size_t kMostOthers = 1024;
  static constexpr int kHeavyNice = 10;

  // `api_keys` outlives it (client_of()).
  TextPools(const TextPoolsOptions& options, std::span<const std::string> api_keys);

  // Runs `run` on a thread of the pool, in its client's turn. Where the pool is full, a call of the client with the
  // most jobs in it is answered 503 with Retry-After. Where the client leaves before its turn, the job is dropped.
  void post(TextWork work, const Call& call, std::function<void()> run);

  // Posts work that belongs to no call. It is left out where the pool is full.
  void post(TextWork work, std::function<void()> run);

  // [kNumTextWorks]
  std::span<const std::unique_ptr<TextPool>> all() const { return pools_; }

 private:
  std::span<const std::string> api_keys_;
  std::array<std::unique_ptr<TextPool>, kNumTextWorks> pools_;
};

// The pools' metrics, in Prometheus' text form.
std::string pool_metrics(const TextPools& pools);

}  // namespace tessera
