// Runs loops of CPU kernels on worker threads. These are OpenMP's threads, which oneDNN also uses.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tessera {

// Returns the number of threads that a kernel uses if the calling thread starts it. OpenMP keeps this number per
// thread.
inline int worker_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

inline void set_worker_threads([[maybe_unused]] int threads) {
#ifdef _OPENMP
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
#endif
}

// Calls body(begin, end) on disjoint ranges that cover [0, count). The calls run in parallel if count is more than
// `grain` and the caller is not itself in a parallel loop. The ranges depend only on count, grain and the thread count.
// body must not throw.
template <class Body>
void parallel_for(std::int64_t count, [[maybe_unused]] std::int64_t grain, const Body& body) {
  if (count <= 0) return;
#ifdef _OPENMP
  const std::int64_t threads =
      std::min<std::int64_t>(omp_get_max_threads(), (count + grain - 1) / std::max<std::int64_t>(grain, 1));
  if (threads > 1 && !omp_in_parallel()) {
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
      const std::int64_t n = omp_get_num_threads();
      const std::int64_t i = omp_get_thread_num();
      const std::int64_t begin = count * i / n;
      const std::int64_t end = count * (i + 1) / n;
      if (begin < end) body(begin, end);
    }
    return;
  }
#endif
  body(std::int64_t{0}, count);
}

// Calls body(item) for each of `count` items, whose costs may differ. Each thread takes one item at a time.
template <class Body>
void parallel_for_dynamic(std::int64_t count, const Body& body) {
#ifdef _OPENMP
  if (count > 1 && omp_get_max_threads() > 1 && !omp_in_parallel()) {
#pragma omp parallel for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#endif
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace tessera
