#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "tessera/ir/picture.h"
#include "tessera/ir/picture_flow.h"
#include "tessera/ir/text.h"

namespace tessera::ir {
namespace {

// Sizes in pixels. Text is monospaced, so its width is known. At font size 11 a character is kCharacter pixels wide.
constexpr double kCharacter = 6.62;
constexpr double kLine = 15;
constexpr double kMargin = 24;
constexpr double kHeader = 78;
constexpr double kBoxWidth = 370;
constexpr double kBoxTop = 23;      // baseline of a box's first result line
constexpr double kRowGap = 20;      // height of an arrow
constexpr double kFrameGap = 22;    // below a frame
constexpr double kFrameTitle = 30;  // above a frame's first box
constexpr double kLane = 15;
constexpr std::size_t kMostLanes = 48;
constexpr std::size_t kMostLabelCharacters = 60;
constexpr std::size_t kMostBoxCharacters = 52;
constexpr std::size_t kMostTooltipCharacters = 2000;

constexpr std::string_view kStyle = R"(
  text { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #475569; }
  .page { fill: #ffffff; }
  .title { font-size: 17px; font-weight: bold; fill: #0f172a; }
  .op { font-size: 13px; font-weight: bold; fill: #0f172a; }
  .box { stroke-width: 1.2; fill: #eff4fb; stroke: #8aa4c8; }
  .box.split { fill: #ffedd5; stroke: #d97706; }
  .box.view { fill: #ffffff; stroke: #94a3b8; stroke-dasharray: 5 3; }
  .box.allocate { fill: #ffffff; stroke: #94a3b8; stroke-dasharray: 1.5 3; }
  .box.return { fill: #e2e8f0; stroke: #64748b; }
  .frame { fill: #f2faf4; stroke: #b7d4c0; }
  .frame.split { fill: #fff8ee; stroke: #f0c48a; }
  .frame-title { font-weight: bold; fill: #3f6b4d; }
  .frame-title.split { fill: #b45309; }
  .edge { fill: none; stroke: #64748b; stroke-width: 1.3; }
  .thread { stroke: #94a3b8; stroke-width: 1; }
  .written { stroke: #d97706; }
  .tip { fill: #64748b; }
  .tip.written { fill: #d97706; stroke: none; }
  .input { fill: #15803d; }
  .weight { fill: #6d4fc4; }
  .state { fill: #b45309; }
  @media (prefers-color-scheme: dark) {
    text { fill: #a9b6c6; }
    .page { fill: #12161d; }
    .title, .op { fill: #eef2f7; }
    .box { fill: #1d2838; stroke: #4d6a93; }
    .box.split { fill: #3b2a12; stroke: #e39a3b; }
    .box.view, .box.allocate { fill: #12161d; stroke: #64748b; }
    .box.return { fill: #2a3442; stroke: #7c8ba0; }
    .frame { fill: #15211a; stroke: #34543f; }
    .frame.split { fill: #221a0f; stroke: #6b4a1c; }
    .frame-title { fill: #8fc3a0; }
    .frame-title.split { fill: #e9ad5b; }
    .edge { stroke: #8a99ad; }
    .thread { stroke: #526072; }
    .written { stroke: #e39a3b; }
    .tip { fill: #8a99ad; }
    .tip.written { fill: #e39a3b; }
    .input { fill: #5fd08a; }
    .weight { fill: #ac97f5; }
    .state { fill: #f0a860; }
  }
)";

std::string xml(std::string_view text, std::size_t most) {
  std::string out;
  for (const char c : printable(text, most)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string_view style_class(NodeStyle style) {
  switch (style) {
    case NodeStyle::kSplit: return " split";
    case NodeStyle::kView: return " view";
    case NodeStyle::kAllocate: return " allocate";
    case NodeStyle::kKernel: break;
  }
  return "";
}

// A line at the right of the boxes. It connects the node that writes a value with the readers further down.
struct Trunk {
  std::size_t from;
  ValueId value;
  std::vector<FlowEdge> edges;
  std::size_t first = 0;  // the first row that the trunk passes
  std::size_t last = 0;
  std::size_t lane = 0;
};

// Assigns lanes. Short trunks lie near the boxes. Trunks that overlap lie in different lanes until kMostLanes lanes
// exist. All further trunks share the last lane.
std::size_t assign_lanes(std::vector<Trunk>& trunks) {
  std::vector<Trunk*> by_length;
  for (Trunk& trunk : trunks) by_length.push_back(&trunk);
  std::stable_sort(by_length.begin(), by_length.end(),
                   [](const Trunk* a, const Trunk* b) { return a->last - a->first < b->last - b->first; });
  std::vector<std::map<std::size_t, std::size_t>> taken;  // for each lane, a map from first row to last row
  for (Trunk* trunk : by_length) {
    std::size_t lane = 0;
    for (; lane < taken.size(); ++lane) {
      const auto after = taken[lane].lower_bound(trunk->first);
      const bool free_after = after == taken[lane].end() || after->first >= trunk->last;
      const bool free_before = after == taken[lane].begin() || std::prev(after)->second <= trunk->first;
      if (free_after && free_before) break;
    }
    if (lane == taken.size() && taken.size() < kMostLanes) taken.emplace_back();
    trunk->lane = std::min(lane, taken.size() - 1);
    taken[trunk->lane].emplace(trunk->first, trunk->last);
  }
  return taken.size();
}

class SvgWriter {
 public:
  SvgWriter(const Graph& graph, const PictureOptions& options)
      : graph_(graph), options_(options), flow_(flow_of(graph, options)) {}

  std::string write() {
    collect_trunks();
    measure();
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\">\n<title>{2}</title>\n<style>{3}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        width_, height_, xml(graph_.name, kMostTooltipCharacters), kStyle);
    write_header();
    write_frames();
    write_trunks();
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      write_labels(row);
      write_box(row);
    }
    write_arrows();
    return out_ + "</svg>\n";
  }

 private:
  // A row of the picture, which shows a node. The row after all nodes shows the outputs.
  struct Row {
    double top = 0;
    double box_height = 0;
    int arrivals = 0;  // lane edges drawn to the row so far
    double bottom() const { return top + box_height; }
  };
  struct Frame {
    int cluster;
    double top;
    double bottom;
  };

  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  const std::vector<ValueId>& named_in(std::size_t row) const {
    return row < graph_.nodes.size() ? graph_.nodes[row].results : graph_.outputs;
  }
  double lane_x(std::size_t lane) const { return box_x_ + kBoxWidth + kLane * (static_cast<double>(lane) + 1); }
  double middle_x() const { return box_x_ + kBoxWidth / 2; }
  // Returns the y coordinate at which an edge that runs in a lane leaves its box. For a result, this is at the result's
  // line. For an operand that the node writes, this is at the lower end of the box.
  double leave_y(const Trunk& trunk) const {
    const Row& row = rows_[trunk.from];
    const std::vector<ValueId>& named = named_in(trunk.from);
    const auto line = std::find(named.begin(), named.end(), trunk.value) - named.begin();
    if (line == std::ssize(named)) return row.bottom() - 7;
    return row.top + kBoxTop + 7 + kLine * static_cast<double>(line);
  }
  // Returns the y coordinate at which the next edge from a lane arrives at a box. Arriving edges lie one below another,
  // above the edges that leave the box.
  double next_arrival_y(std::size_t row) {
    const double y = rows_[row].top + 9 + 6 * rows_[row].arrivals++;
    return std::min(y, rows_[row].bottom() - 5);
  }

  // Arrows to the next node are drawn straight. All other arrows run in lanes.
  void collect_trunks() {
    std::map<std::pair<std::size_t, ValueId>, std::size_t> index;
    for (const FlowEdge& edge : flow_.edges) {
      if (edge.to == edge.from + 1) {
        straight_.push_back(edge);
        continue;
      }
      const auto [found, added] = index.try_emplace({edge.from, edge.value}, trunks_.size());
      if (added)
        trunks_.push_back({.from = edge.from, .value = edge.value, .edges = {}, .first = edge.from, .last = edge.from});
      Trunk& trunk = trunks_[found->second];
      trunk.edges.push_back(edge);
      trunk.first = std::min(trunk.first, edge.to);
      trunk.last = std::max(trunk.last, edge.to);
    }
    lanes_ = assign_lanes(trunks_);
  }

  void measure() {
    std::size_t label_characters = 24;  // at least the width of the header
    for (const auto& labels : flow_.labels) {
      for (const FlowLabel& label : labels) {
        label_characters = std::max(label_characters, label_text(label).size());
      }
    }
    box_x_ = kMargin + kCharacter * static_cast<double>(std::min(label_characters, kMostLabelCharacters)) + 44;
    width_ = lane_x(lanes_) + kMargin;

    double y = kHeader;
    int cluster = -1;
    const std::size_t rows = graph_.nodes.size() + (graph_.outputs.empty() ? 0 : 1);
    for (std::size_t row = 0; row < rows; ++row) {
      const int own = row < graph_.nodes.size() ? flow_.clusters[row] : -1;
      if (own != cluster) {
        if (cluster >= 0) y += kFrameGap;
        if (own >= 0) {
          frames_.push_back({.cluster = own, .top = y, .bottom = y});
          y += kFrameTitle;
        }
        cluster = own;
      }
      const double box = kBoxTop + kLine * static_cast<double>(named_in(row).size()) + 5;
      const double labels = kLine * static_cast<double>(flow_.labels[row].size());
      rows_.push_back({.top = y, .box_height = std::max(box, labels), .arrivals = 0});
      y += rows_.back().box_height + kRowGap;
      if (own >= 0) frames_.back().bottom = y - kRowGap + 14;
    }
    height_ = y + kMargin;
  }

  std::string label_text(const FlowLabel& label) const {
    const Value& value = graph_.value(label.value);
    return fmt::format("{}{} {}", label.written ? "mut " : "", value.name, value.type.to_string());
  }

  void write_header() {
    put("<text class=\"title\" x=\"{:.0f}\" y=\"34\">{}</text>\n", kMargin, xml(graph_.name, kMostBoxCharacters));
    put("<text x=\"{:.0f}\" y=\"54\">{} nodes, <tspan class=\"input\">{} inputs</tspan>, <tspan class=\"weight\">{} "
        "weights</tspan>, <tspan class=\"state\">{} states</tspan></text>\n",
        kMargin, graph_.nodes.size(), graph_.inputs.size(), graph_.weights.size(), graph_.states.size());
  }

  void write_frames() {
    for (const Frame& frame : frames_) {
      const PictureCluster& cluster = options_.clusters[static_cast<std::size_t>(frame.cluster)];
      const std::string_view split = cluster.is_split ? " split" : "";
      put("<rect class=\"frame{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"10\"/>\n", split,
          kMargin / 2, frame.top, width_ - kMargin, frame.bottom - frame.top);
      put("<text class=\"frame-title{}\" x=\"{:.0f}\" y=\"{:.1f}\">{}</text>\n", split, kMargin, frame.top + 19,
          xml(cluster.title, kMostBoxCharacters));
    }
  }

  void write_box(std::size_t row) {
    const bool returns = row == graph_.nodes.size();
    const Row& at = rows_[row];
    const Node none;
    const Node& node = returns ? none : graph_.nodes[row];
    put("<g><title>{}</title>\n", returns ? "return" : xml(to_text(graph_, node), kMostTooltipCharacters));
    put("<rect class=\"box{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"8\"/>\n",
        returns ? " return" : style_class(flow_.styles[row]), box_x_, at.top, kBoxWidth, at.box_height);
    const std::string op = returns ? "return" : xml(node.op, 28);
    const std::size_t op_characters = std::min<std::size_t>(returns ? 6 : node.op.size(), 28);
    const std::string attributes = xml(attributes_text(graph_, node), kMostBoxCharacters - 2 - op_characters * 13 / 11);
    put("<text x=\"{:.1f}\" y=\"{:.1f}\"><tspan class=\"op\">{}</tspan><tspan dx=\"9\">{}</tspan></text>\n",
        box_x_ + 12, at.top + 18, op, attributes);
    double y = at.top + kBoxTop + 11;
    for (const ValueId id : named_in(row)) {
      put("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", box_x_ + 12, y,
          xml(typed_name(graph_, id), kMostBoxCharacters));
      y += kLine;
    }
    put("</g>\n");
  }

  // Writes labels at the left. A line joins each label to the box. At the label the line begins with a dot, or with an
  // arrow tip if the node writes the value.
  void write_labels(std::size_t row) {
    const std::vector<FlowLabel>& labels = flow_.labels[row];
    if (labels.empty()) return;
    const double x = box_x_ - 30;
    double y = rows_[row].top + (rows_[row].box_height - kLine * static_cast<double>(labels.size() - 1)) / 2;
    for (const FlowLabel& label : labels) {
      const Value& value = graph_.value(label.value);
      const std::string_view kind = value_kind_name(value.kind);
      put("<g><title>{}</title><line class=\"thread{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
          xml(fmt::format("{} {}", kind, typed_name(graph_, label.value)), kMostTooltipCharacters),
          label.written ? " written" : "", x, y, box_x_, y);
      if (label.written) {
        put("<path class=\"tip written\" d=\"M{:.1f} {:.1f}l8 -4v8z\"/>", x - 3, y);
      } else {
        put("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", kind, x, y);
      }
      put("<text class=\"{}\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n", kind, x - 8, y + 4,
          xml(label_text(label), kMostLabelCharacters));
      y += kLine;
    }
  }

  void write_trunks() {
    for (const Trunk& trunk : trunks_) {
      const double x = lane_x(trunk.lane);
      const double right = box_x_ + kBoxWidth;
      put("<g><title>{}</title>\n", xml(typed_name(graph_, trunk.value), kMostTooltipCharacters));
      for (const FlowEdge& edge : trunk.edges) {
        const double from = leave_y(trunk);
        const double to = next_arrival_y(edge.to);
        const double bend = to > from ? 6 : -6;
        put("<path class=\"edge{}\" d=\"M{:.1f} {:.1f}H{:.1f}q6 0 6 {:.0f}V{:.1f}q0 {:.0f} -6 {:.0f}H{:.1f}\"/>",
            edge.written ? " written" : "", right, from, x - 6, bend, to - bend, bend, bend, right + 7);
        put("<path class=\"tip{}\" d=\"M{:.1f} {:.1f}l8 -4v8z\"/>\n", edge.written ? " written" : "", right, to);
      }
      put("</g>\n");
    }
  }

  void write_arrows() {
    for (const FlowEdge& edge : straight_) {
      const std::string_view written = edge.written ? " written" : "";
      const double to = rows_[edge.to].top;
      put("<g><title>{}</title><path class=\"edge{}\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>",
          xml(typed_name(graph_, edge.value), kMostTooltipCharacters), written, middle_x(), rows_[edge.from].bottom(),
          to - 7);
      put("<path class=\"tip{}\" d=\"M{:.1f} {:.1f}l-4 -8h8z\"/></g>\n", written, middle_x(), to);
    }
  }

  const Graph& graph_;
  const PictureOptions& options_;
  const Flow flow_;
  std::vector<FlowEdge> straight_;
  std::vector<Trunk> trunks_;
  std::size_t lanes_ = 0;
  std::vector<Row> rows_;
  std::vector<Frame> frames_;
  double box_x_ = 0;
  double width_ = 0;
  double height_ = 0;
  std::string out_;
};

}  // namespace

std::string to_svg(const Graph& graph, const PictureOptions& options) { return SvgWriter(graph, options).write(); }

}  // namespace tessera::ir
