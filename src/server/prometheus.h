// Figures in the text that Prometheus reads.
#ifndef NUNSPARK_SERVER_PROMETHEUS_H_
#define NUNSPARK_SERVER_PROMETHEUS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nunspark::server {

// Of one model: every value is labelled with its name. Names get "nunspark_" in front.
class PrometheusText {
 public:
  explicit PrometheusText(std::string_view model);

  void Counter(std::string_view name, std::string_view help, int64_t value);
  void Gauge(std::string_view name, std::string_view help, int64_t value);

  // One counter for each of some things, which `label` tells apart.
  using Values = std::vector<std::pair<std::string, int64_t>>;
  void Counters(std::string_view name, std::string_view help, std::string_view label, const Values& values);

  // counts [bounds + 1]: values up to each bound that are above the one before, and those above the last.
  void Histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                 std::span<const int64_t> counts, double sum);

  std::string Take() { return std::move(text_); }

 private:
  void Head(std::string_view type, std::string_view name, std::string_view help);

  std::string model_;  // as a label's value
  std::string text_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_PROMETHEUS_H_
