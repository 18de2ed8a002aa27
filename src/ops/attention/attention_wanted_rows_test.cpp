// Tests attention that computes only the wanted rows (ForwardBatch::wanted_rows), on each kernel that the device has.
// Catches: wanted rows that are left out; wanted rows whose bits differ from those of a run that computes all rows; a
// launch for wanted rows that uses the work items of all rows, or the reverse; launches that are left out although the
// step has work for them; unwanted rows that are computed anyway.
#include <gmock/gmock.h>

#include "tessera/ops/attention/attention_test_util.h"
#include "tessera/ops/contract/forward_states.h"

namespace tessera::testing {
namespace {

using ir::DType;

std::vector<std::string> kernels() {
  return on_cuda() ? std::vector<std::string>{"fa3", "fa2", "tessera"} : std::vector<std::string>{""};
}

Config config_of(std::int64_t head_dim, std::int64_t group) {
  return {.dtype = DType::kBFloat16,
          .cache_dtype = DType::kBFloat16,
          .heads = 2 * group,
          .kv_heads = 2,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(head_dim))};
}

Config of_wanted_rows(Config c) {
  c.wanted_rows_only = true;
  return c;
}

enum class Wanted : std::uint8_t { kNone, kLast, kSome, kAll };
constexpr std::array kAnyWanted{Wanted::kLast, Wanted::kNone, Wanted::kSome, Wanted::kAll};

// Returns the wanted rows. With kSome, a pattern repeats every three requests: one wants no row, the next wants the
// last quarter of its rows, and the one after it wants its first and its last row.
std::vector<std::int32_t> rows_of(const std::vector<Request>& requests, Wanted wanted) {
  std::vector<std::int32_t> rows;
  std::int32_t begin = 0;
  for (std::size_t b = 0; b < requests.size(); begin += requests[b++].query_len) {
    const std::int32_t length = requests[b].query_len;
    for (std::int32_t row = 0; row < length; ++row) {
      const bool last = row == length - 1;
      const bool some = b % 3 != 0 && (b % 3 == 1 ? row >= length * 3 / 4 : row == 0 || last);
      if (wanted == Wanted::kAll || (wanted == Wanted::kLast && last) || (wanted == Wanted::kSome && some))
        rows.push_back(begin + row);
    }
  }
  return rows;
}

ForwardBatch batch_of(const Config& c, const std::vector<Request>& requests, Wanted wanted, std::uint32_t seed = 5) {
  ForwardBatch batch = make_batch(requests, c.page_size, seed);
  batch.wanted_rows = rows_of(requests, wanted);
  return batch;
}

HostTensor run(const Config& c, const Bench& bench, const std::vector<HostTensor>& operands) {
  return run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context).operands[3];
}

const std::vector<Request> kRequests = {{1, 1},     {300, 300}, {5, 5},      {1, 130},
                                        {193, 400}, {2, 65},    {129, 1000}, {1, 1500}};

// Compares a row of `out` with `expected`. Returns the greatest difference of an element, relative to the greatest
// expected magnitude in the element's head.
double difference(const Config& c, const HostTensor& out, const std::vector<double>& expected, std::int64_t row) {
  double worst = 0;
  for (std::int64_t head = 0; head < c.heads; ++head) {
    const std::int64_t begin = (row * c.heads + head) * c.head_dim;
    double magnitude = 1e-3;
    double greatest = 0;
    for (std::int64_t i = begin; i < begin + c.head_dim; ++i) {
      const double e = expected[static_cast<std::size_t>(i)];
      magnitude = std::max(magnitude, std::abs(e));
      const double d = std::abs(out.at(i) - e);
      greatest = std::isnan(d) ? INFINITY : std::max(greatest, d);
    }
    worst = std::max(worst, greatest / magnitude);
  }
  return worst;
}

// Checks the wanted rows. They must have the same bits as in a run of all rows. If `same_bits` is false, there is one
// exception: a prompt's last row may have other bits if no other row of the prompt is wanted, because it may then run
// on another kernel ("hopper").
void expect_wanted_rows(const Config& c, const std::vector<Request>& requests, const std::vector<std::int32_t>& rows,
                        const HostTensor& all, const HostTensor& wanted, const std::vector<double>& expected,
                        bool same_bits, const std::string& what) {
  std::int32_t begin = 0;
  for (const Request& request : requests) {
    const std::int32_t end = begin + request.query_len;
    const auto of_request = [&](std::int32_t row) { return row >= begin && row < end; };
    const auto count = std::ranges::count_if(rows, of_request);
    for (const std::int32_t row : rows) {
      if (!of_request(row)) continue;
      ASSERT_LE(difference(c, wanted, expected, row), kLibraryTolerance) << what << ", row " << row;
      if (!same_bits && request.query_len > 1 && count == 1 && row == end - 1) continue;
      for (std::int64_t i = row * all.dims[1]; i < (row + 1) * all.dims[1]; ++i)
        ASSERT_EQ(wanted.at(i), all.at(i)) << what << ", row " << row;
    }
    begin = end;
  }
}

void check(const Config& c, bool deterministic) {
  const Config hinted = of_wanted_rows(c);
  ForwardBatch batch = batch_of(c, kRequests, Wanted::kNone);
  const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(kRequests) + 3, 6);
  const std::vector<double> expected = reference(c, batch, operands);
  for (const std::string& kernel : kernels()) {
    Bench bench = Bench::create(c.page_size, {{c, hinted}}, BatchKind::kExtend, kernel, deterministic);
    if (bench.kernel(c) != kernel) continue;
    EXPECT_EQ(bench.kernel(hinted), kernel);
    const bool separates = on_cuda() && !deterministic && kernel != "tessera";
    for (const Wanted which : kAnyWanted) {
      batch.wanted_rows = rows_of(kRequests, which);
      const std::string what = "d" + std::to_string(c.head_dim) + " " + kernel + " wanted " +
                               std::to_string(static_cast<int>(which)) + (deterministic ? " deterministic" : "");
      bench.plan(with_unseen_pages_freed(c, batch));
      const HostTensor all = run(c, bench, operands);
      const HostTensor wanted = run(hinted, bench, operands);
      expect_wanted_rows(c, kRequests, batch.wanted_rows, all, wanted, expected, !separates, what);
      EXPECT_FALSE(std::isnan(all.at(all.dims[1]))) << what << ": the other node computes every row";
      // Row 1 is the first row of a prompt of several tiles.
      const bool computed = !std::isnan(wanted.at(wanted.dims[1]));
      EXPECT_EQ(computed, which == Wanted::kAll) << what;
    }
  }
}

TEST(AttentionOfWantedRows, EqualsAttentionOfAllRows) {
  check(config_of(64, 3), /*deterministic=*/false);
  if (!on_cuda()) return;  // the CPU has one kernel for all sizes
  for (const std::int64_t head_dim : {128, 256}) check(config_of(head_dim, 2), false);
  check(config_of(128, 5), false);
  check(config_of(512, 4), false);
}

TEST(AttentionOfWantedRows, MatchesTheReferenceWithWindowsSoftcapAndSinks) {
  Config c = config_of(128, 2);
  c.window = 100;
  check(c, /*deterministic=*/false);
  c.softcap = 3;
  c.sinks = true;
  check(c, false);
}

TEST(AttentionOfWantedRows, KeepsDeterministicBits) {
  Config c = config_of(64, 4);
  check(c, /*deterministic=*/true);
  c.window = 100;
  check(c, true);
}

// The prompts are so short that "fa3" uses its short tiles, and that our own kernel cuts their keys into ranges.
TEST(AttentionOfWantedRows, ServesShortPrompts) {
  const Config c = config_of(128, 2);
  const std::vector<Request> requests = {{70, 90}, {1, 300}, {40, 40}};
  for (const std::string& kernel : kernels()) {
    Bench bench = Bench::create(c.page_size, {{c, of_wanted_rows(c)}}, BatchKind::kExtend, kernel);
    if (bench.kernel(c) != kernel) continue;
    for (const Wanted which : kAnyWanted) {
      const ForwardBatch batch = batch_of(c, requests, which);
      const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(requests), 6);
      bench.plan(batch);
      const HostTensor all = run(c, bench, operands);
      expect_wanted_rows(c, requests, batch.wanted_rows, all, run(of_wanted_rows(c), bench, operands),
                         reference(c, batch, operands), /*same_bits=*/!on_cuda(), kernel);
    }
  }
}

// Runs one operator for several steps. Then records the operator as in the full graph of a prefill, and replays the
// graph for the second and third steps. A full graph contains a whole forward, and runs only if all requests have
// several rows. The first step has requests of a single row, so the graph does not run for this step.
TEST(AttentionOfWantedRows, FollowsTheWantedRowsOfEachStep) {
  const Config c = of_wanted_rows(config_of(128, 4));
  const std::vector<std::vector<Request>> steps = {
      {{1, 900}, {140, 140}, {1, 33}, {9, 1000}}, {{5, 5}, {170, 190}}, {{2, 300}, {150, 400}}};
  constexpr std::int64_t kRows = 176;
  for (const std::string& kernel : kernels()) {
    Bench bench = Bench::create(c.page_size, {{c}}, BatchKind::kExtend, kernel);
    if (bench.kernel(c) != kernel) continue;
    ForwardStates states;
    bench.context.states = &states;
    const ForwardBatch first = batch_of(c, {{3, 3}}, Wanted::kNone);
    bench.plan(first);
    Result<const KernelDef*> def = kernel_under_test(kAttentionCpu);
    ASSERT_TRUE(def.ok()) << def.status().message();
    Result<std::unique_ptr<OpCase>> op = OpCase::create(
        test_device(), kAttention, **def, make_operands(c, first, kRows, 2), c.attributes(), bench.context);
    ASSERT_TRUE(op.ok()) << op.status().message();
    const auto expect_steps = [&](std::size_t from, bool replayed) {
      for (std::size_t i = from; i < steps.size(); ++i)
        for (const Wanted which : kAnyWanted) {
          const auto seed = static_cast<std::uint32_t>(30 + i);
          const ForwardBatch batch = batch_of(c, steps[i], which, seed);
          const std::vector<HostTensor> operands = make_operands(c, batch, kRows, seed);
          bench.plan(batch);
          ASSERT_TRUE((*op)->load(operands).ok());
          ASSERT_TRUE((replayed ? (*op)->replay() : (*op)->enqueue()).ok());
          Result<std::vector<HostTensor>> after = (*op)->operands();
          ASSERT_TRUE(after.ok()) << after.status().message();
          const std::vector<double> expected = reference(c, batch, operands);
          for (const std::int32_t row : batch.wanted_rows)
            ASSERT_LE(difference(c, (*after)[3], expected, row), kLibraryTolerance)
                << kernel << " step " << i << " wanted " << static_cast<int>(which) << " row " << row
                << (replayed ? " of a full graph" : "");
        }
    };
    expect_steps(0, /*replayed=*/false);
    {
      const ForwardStates::Scope full(&states, ForwardState::kFull);
      ASSERT_TRUE((*op)->record().ok());
    }
    expect_steps(1, /*replayed=*/true);
  }
}

}  // namespace
}  // namespace tessera::testing
