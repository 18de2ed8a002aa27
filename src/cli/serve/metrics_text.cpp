#include "tessera/cli/serve/metrics_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "tessera/base/json_fields.h"

namespace tessera::cli {
namespace {

std::optional<double> number_of(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

struct Sample {
  std::string labels;  // all labels except `le`
  double limit = 0;
  double count = 0;  // number of observations up to the limit
};

// Parses the text after the name in a bucket's line, such as `{model_name="m",le="16"} 3`. This program's label values
// contain no quotes.
std::optional<Sample> read_sample(std::string_view text) {
  const std::size_t close = text.rfind('}');
  if (!text.starts_with('{') || close == std::string_view::npos) return std::nullopt;
  std::string_view labels = text.substr(1, close - 1);
  std::string_view value = text.substr(close + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  value = value.substr(0, value.find(' '));  // a timestamp may follow
  constexpr std::string_view kLimit = "le=\"";
  std::size_t at = labels.find(kLimit);
  while (at != std::string_view::npos && at > 0 && labels[at - 1] != ',') at = labels.find(kLimit, at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t begin = at + kLimit.size();
  const std::size_t end = labels.find('"', begin);
  if (end == std::string_view::npos) return std::nullopt;
  const std::optional<double> limit = number_of(labels.substr(begin, end - begin));
  const std::optional<double> count = number_of(value);
  if (!limit || !count || *count < 0 || std::isinf(*count)) return std::nullopt;
  return Sample{std::string(labels.substr(0, at)) + std::string(labels.substr(end + 1)), *limit, *count};
}

}  // namespace

Result<std::vector<HistogramBucket>> read_histogram(std::string_view text, std::string_view name,
                                                    std::string_view file) {
  const std::string bucket = std::string(name) + "_bucket";
  std::map<double, double> counts;
  // The last bucket that was read from each series. The next bucket of the series must have a higher upper bound and at
  // least the same count.
  std::map<std::string, Sample, std::less<>> last;
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    if (!line.starts_with(bucket) || line.size() == bucket.size() || line[bucket.size()] != '{') continue;
    std::string_view rest = line.substr(bucket.size());
    if (rest.ends_with('\r')) rest.remove_suffix(1);
    const std::optional<Sample> sample = read_sample(rest);
    if (!sample) {
      return invalid_argument(fmt::format("{}:{}: \"{}\" is not accepted; a line like {}{{le=\"16\"}} 3 is", file,
                                          number, clip_text(std::string(line)), bucket));
    }
    double before = 0;
    if (const auto found = last.find(sample->labels); found != last.end()) {
      if (sample->limit <= found->second.limit || sample->count < found->second.count) {
        return invalid_argument(fmt::format("{}:{}: \"{}\" comes after a bucket of more; limits and counts must rise",
                                            file, number, clip_text(std::string(line))));
      }
      before = found->second.count;
    }
    counts[sample->limit] += sample->count - before;
    last[sample->labels] = *sample;
  }
  for (const auto& [labels, sample] : last) {
    if (std::isinf(sample.limit)) continue;
    return invalid_argument(
        fmt::format("{}: {} ends before its bucket le=\"+Inf\"; the file is not whole", file, bucket));
  }
  if (counts.empty()) return not_found(fmt::format("{} has no metric {}", file, bucket));
  std::vector<HistogramBucket> buckets;
  for (const auto& [limit, count] : counts) buckets.push_back({limit, count});
  return buckets;
}

}  // namespace tessera::cli
