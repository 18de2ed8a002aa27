// Builds a scrape in Prometheus' text format: families of samples in the order in which they are added.
//
//   MetricFamilies families;
//   families.gauge("tessera:cached_pages", "Pages that …", {}, 5);
//   families.counters("tessera:replays_total", "Forwards that …", {{{{"bucket", "8"}}, 21}, {{{"bucket", "16"}}, 3}});
//   send(families.text());
//
// The caller must keep names and labels unique.
#pragma once

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

struct MetricSample {
  MetricLabels labels;
  double number = 0;
};

// One bucket of a histogram: the number of observations of at most `limit`, including those in smaller buckets.
struct MetricBucket {
  double limit = 0;
  std::int64_t count = 0;
};

class MetricFamilies {
 public:
  void gauge(std::string name, const char* help, const MetricLabels& labels, double number);
  void gauges(std::string name, const char* help, const std::vector<MetricSample>& samples);
  void counter(std::string name, const char* help, const MetricLabels& labels, std::int64_t number);
  void counters(std::string name, const char* help, const std::vector<MetricSample>& samples);
  void histogram(std::string name, const char* help, const MetricLabels& labels,
                 const prometheus::Histogram& histogram);
  struct LabelledHistogram {
    MetricLabels labels;
    const prometheus::Histogram* histogram = nullptr;
  };
  void histograms(std::string name, const char* help, const std::vector<LabelledHistogram>& all);
  // Adds a histogram that was counted elsewhere. `buckets` ascend and are cumulative, so the last bucket
  // counts all observations. The scrape adds +Inf.
  void histogram(std::string name, const char* help, const std::vector<MetricBucket>& buckets, double sum);
  std::string text() const;

 private:
  void add(prometheus::MetricType type, std::string name, const char* help,
           std::vector<prometheus::ClientMetric> metrics);
  void add_numbers(prometheus::MetricType type, std::string name, const char* help,
                   const std::vector<MetricSample>& samples);
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace tessera
