#include "tessera/cli/bench/serve_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

struct Compared {
  std::string_view name;
  double Distribution::*percentile;
};
constexpr std::array kCompared{Compared{"ttft_p50_ms", &Distribution::p50},
                               Compared{"ttft_p99_ms", &Distribution::p99}};

std::vector<double> numbers(std::span<const GraphsRun> runs, std::string_view rate, bool graphs,
                            const Compared& compared) {
  std::vector<double> found;
  for (const GraphsRun& run : runs)
    if (run.rate == rate && run.graphs == graphs) found.push_back(run.result->ttft.*compared.percentile);
  return found;
}

RunDifference difference_of(const Compared& compared, std::span<const double> without, std::span<const double> with) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < with.size(); ++i) differences.push_back(with[i] - without[i]);
  return {
      .name = compared.name, .without = mean(without), .with = mean(with), .difference = mean_interval(differences)};
}

}  // namespace

std::vector<RateComparison> compare_graphs(std::span<const GraphsRun> runs) {
  std::vector<RateComparison> comparisons;
  for (const GraphsRun& first : runs) {
    const std::string& rate = first.rate;
    if (std::ranges::any_of(comparisons, [&](const RateComparison& known) { return known.rate == rate; })) continue;
    RateComparison comparison{.rate = rate, .pairs = 0, .differences = {}};
    for (const Compared& compared : kCompared) {
      std::vector<double> without = numbers(runs, rate, false, compared);
      std::vector<double> with = numbers(runs, rate, true, compared);
      comparison.pairs = std::min(without.size(), with.size());
      if (comparison.pairs < 2) break;
      without.resize(comparison.pairs);
      with.resize(comparison.pairs);
      comparison.differences.push_back(difference_of(compared, without, with));
    }
    comparisons.push_back(std::move(comparison));
  }
  std::erase_if(comparisons, [](const RateComparison& comparison) { return comparison.differences.empty(); });
  return comparisons;
}

std::string to_text(std::span<const RateComparison> comparisons) {
  if (comparisons.empty()) return "";
  Table table({"graphs against eager", ">pairs", "of first token", ">eager ms", ">graphs ms", "difference, 95 %", ""});
  for (const RateComparison& comparison : comparisons) {
    for (const RunDifference& d : comparison.differences) {
      const char* const verdict = d.difference.holds(0) ? "none to tell" : d.difference.high < 0 ? "faster" : "slower";
      table.add({comparison.rate, count_text(static_cast<std::int64_t>(comparison.pairs)),
                 d.name == kCompared[0].name ? "p50" : "p99", number_text(d.without), number_text(d.with),
                 fmt::format("{:+.3g} to {:+.3g}", d.difference.low, d.difference.high), verdict});
    }
  }
  return table.text();
}

Json to_json(std::span<const RateComparison> comparisons) {
  Json list = Json::array();
  for (const RateComparison& comparison : comparisons) {
    Json entry = Json::object();
    entry.set("rate", comparison.rate).set("pairs", static_cast<std::int64_t>(comparison.pairs));
    for (const RunDifference& d : comparison.differences) {
      Json numbers = Json::object();
      numbers.set("eager", d.without).set("graphs", d.with);
      numbers.set("difference_low", d.difference.low).set("difference_high", d.difference.high);
      entry.set(std::string(d.name), std::move(numbers));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace tessera::cli
