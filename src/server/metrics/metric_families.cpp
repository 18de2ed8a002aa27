#include "tessera/server/metrics/metric_families.h"

#include <prometheus/client_metric.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <sstream>

namespace tessera {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

std::vector<ClientMetric::Label> to_labels(const MetricLabels& labels) {
  std::vector<ClientMetric::Label> made;
  for (const auto& [name, value] : labels) made.push_back({.name = name, .value = value});
  return made;
}

}  // namespace

void MetricFamilies::add(MetricType type, std::string name, const char* help, std::vector<ClientMetric> metrics) {
  families_.push_back({.name = std::move(name), .help = help, .type = type, .metric = std::move(metrics)});
}

void MetricFamilies::add_numbers(MetricType type, std::string name, const char* help,
                                 const std::vector<MetricSample>& samples) {
  std::vector<ClientMetric> metrics;
  for (const MetricSample& sample : samples) {
    ClientMetric metric;
    metric.label = to_labels(sample.labels);
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = sample.number;
    metrics.push_back(std::move(metric));
  }
  add(type, std::move(name), help, std::move(metrics));
}

void MetricFamilies::gauge(std::string name, const char* help, const MetricLabels& labels, double number) {
  gauges(std::move(name), help, {{labels, number}});
}
void MetricFamilies::gauges(std::string name, const char* help, const std::vector<MetricSample>& samples) {
  add_numbers(MetricType::Gauge, std::move(name), help, samples);
}
void MetricFamilies::counter(std::string name, const char* help, const MetricLabels& labels, std::int64_t number) {
  counters(std::move(name), help, {{labels, static_cast<double>(number)}});
}
void MetricFamilies::counters(std::string name, const char* help, const std::vector<MetricSample>& samples) {
  add_numbers(MetricType::Counter, std::move(name), help, samples);
}

void MetricFamilies::histogram(std::string name, const char* help, const MetricLabels& labels,
                               const prometheus::Histogram& histogram) {
  histograms(std::move(name), help, {{labels, &histogram}});
}

void MetricFamilies::histograms(std::string name, const char* help, const std::vector<LabelledHistogram>& all) {
  std::vector<ClientMetric> metrics;
  for (const auto& [labels, histogram] : all) {
    ClientMetric metric = histogram->Collect();
    metric.label = to_labels(labels);
    metrics.push_back(std::move(metric));
  }
  add(MetricType::Histogram, std::move(name), help, std::move(metrics));
}

void MetricFamilies::histogram(std::string name, const char* help, const std::vector<MetricBucket>& buckets,
                               double sum) {
  ClientMetric metric;
  for (const MetricBucket& bucket : buckets)
    metric.histogram.bucket.push_back(
        {.cumulative_count = static_cast<std::uint64_t>(bucket.count), .upper_bound = bucket.limit});
  metric.histogram.sample_count = buckets.empty() ? 0 : metric.histogram.bucket.back().cumulative_count;
  metric.histogram.sample_sum = sum;
  metric.histogram.bucket.push_back(
      {.cumulative_count = metric.histogram.sample_count, .upper_bound = std::numeric_limits<double>::infinity()});
  add(MetricType::Histogram, std::move(name), help, {std::move(metric)});
}

std::string MetricFamilies::text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_);
  return out.str();
}

}  // namespace tessera
