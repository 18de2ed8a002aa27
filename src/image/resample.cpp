#include "tessera/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

// Compiles a function for AVX-512, AVX2 and the baseline. The dynamic loader chooses one of these variants. Only g++ on
// x86-64 supports this. Builds with sanitizers have only one variant, because the loader makes its choice before the
// sanitizers start.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_RESAMPLE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TESSERA_RESAMPLE_CLONES
#endif

namespace tessera {
namespace {

// Red, green, blue and an unused value, so that one vector operation adds a pixel to a sum. The vector is in a struct
// because a vector type loses its attribute if it is a template argument.
struct Pixel {
  using Vector = std::int32_t __attribute__((vector_size(16)));
  Vector colours;
};

// Returns Keys' cubic convolution kernel at `x`, with a = -1/2.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

constexpr std::uint8_t to_byte(std::int32_t value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

TESSERA_RESAMPLE_CLONES void resample_row(const Pixel* row, const ResampleTable& table, std::uint8_t* red,
                                          std::uint8_t* green, std::uint8_t* blue) {
  const std::int32_t half = 1 << (table.precision - 1);
  const std::int16_t* weights = table.weights.data();
  const std::size_t size = table.first.size();
  for (std::size_t i = 0; i < size; ++i, weights += table.taps) {
    const Pixel* from = row + table.first[i];
    Pixel::Vector sum{half, half, half, half};
    for (std::int32_t tap = 0; tap < table.count[i]; ++tap) sum += from[tap].colours * std::int32_t{weights[tap]};
    sum >>= table.precision;
    red[i] = to_byte(sum[0]);
    green[i] = to_byte(sum[1]);
    blue[i] = to_byte(sum[2]);
  }
}

// Computes row `y` of the output from the input's rows. Each row of the input and of the output has `values` numbers.
TESSERA_RESAMPLE_CLONES void resample_column(const std::uint8_t* rows, std::size_t values, const ResampleTable& table,
                                             std::size_t y, std::uint8_t* to) {
  constexpr std::size_t kBlock = 64;
  const std::int16_t* weights = table.weights.data() + y * static_cast<std::size_t>(table.taps);
  const std::uint8_t* first = rows + static_cast<std::size_t>(table.first[y]) * values;
  for (std::size_t begin = 0; begin < values; begin += kBlock) {
    const std::size_t size = std::min(kBlock, values - begin);
    std::int32_t sums[kBlock];
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] = 1 << (table.precision - 1);
    for (std::int32_t tap = 0; tap < table.count[y]; ++tap) {
      const std::uint8_t* from = first + static_cast<std::size_t>(tap) * values + begin;
      const std::int16_t weight = weights[tap];
      for (std::size_t i = 0; i < size; ++i) sums[i] += std::int32_t{weight} * from[i];
    }
    for (std::size_t i = 0; i < size; ++i) to[begin + i] = to_byte(sums[i] >> table.precision);
  }
}

void take_apart(const std::uint8_t* rgb, std::int32_t width, std::uint8_t* red, std::uint8_t* green,
                std::uint8_t* blue) {
  for (std::int32_t x = 0; x < width; ++x) {
    red[x] = rgb[3 * x];
    green[x] = rgb[3 * x + 1];
    blue[x] = rgb[3 * x + 2];
  }
}

RowPlanes make_planes(std::int32_t width, std::int32_t height) {
  RowPlanes planes{width, height};
  planes.values.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  return planes;
}

RowPlanes resize_rows(const Image& image, std::int32_t width) {
  RowPlanes planes = make_planes(width, image.height);
  const std::uint8_t* rgb = image.rgb.data();
  if (width == image.width) {
    for (std::int32_t y = 0; y < image.height; ++y, rgb += std::ptrdiff_t{3} * image.width) {
      take_apart(rgb, width, planes.row(y, 0), planes.row(y, 1), planes.row(y, 2));
    }
    return planes;
  }
  const ResampleTable table = make_resample_table(image.width, width);
  std::vector<Pixel> row(static_cast<std::size_t>(image.width));
  for (std::int32_t y = 0; y < image.height; ++y) {
    for (Pixel& pixel : row) {
      pixel.colours = Pixel::Vector{rgb[0], rgb[1], rgb[2], 0};
      rgb += 3;
    }
    resample_row(row.data(), table, planes.row(y, 0), planes.row(y, 1), planes.row(y, 2));
  }
  return planes;
}

}  // namespace

ResampleTable make_resample_table(std::int32_t from, std::int32_t to) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double reach = 2 * stretch;
  ResampleTable table;
  table.taps = 2 * static_cast<std::int32_t>(std::ceil(reach)) + 1;
  table.first.resize(static_cast<std::size_t>(to));
  table.count.resize(static_cast<std::size_t>(to));
  table.weights.resize(static_cast<std::size_t>(to) * static_cast<std::size_t>(table.taps));

  std::vector<double> exact(table.weights.size());
  double greatest = 0;
  for (std::int32_t i = 0; i < to; ++i) {
    const double centre = scale * (i + 0.5);
    const std::int32_t first = std::max(static_cast<std::int32_t>(std::floor(centre - reach + 0.5)), 0);
    const std::int32_t end = std::min(static_cast<std::int32_t>(std::floor(centre + reach + 0.5)), from);
    const std::int32_t count = std::clamp(end - first, 0, table.taps);
    double* weights = exact.data() + std::ptrdiff_t{i} * table.taps;
    double total = 0;
    for (std::int32_t k = 0; k < count; ++k) {
      weights[k] = cubic((k + first - centre + 0.5) * (1 / stretch));
      total += weights[k];
    }
    for (std::int32_t k = 0; k < count && total != 0; ++k) {
      weights[k] /= total;
      greatest = std::max(greatest, weights[k]);
    }
    table.first[static_cast<std::size_t>(i)] = first;
    table.count[static_cast<std::size_t>(i)] = count;
  }

  // At this precision, a sum of products of weights and bytes still fits in 32 bits.
  constexpr std::int32_t kMostPrecision = 22;
  while (table.precision < kMostPrecision && 0.5 + greatest * (1 << (table.precision + 1)) < (1 << 15))
    ++table.precision;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double scaled = exact[i] * (1 << table.precision);
    table.weights[i] = static_cast<std::int16_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  return table;
}

RowPlanes resize_bicubic(const Image& image, std::int32_t width, std::int32_t height) {
  RowPlanes rows = resize_rows(image, width);
  if (height == image.height) return rows;
  const ResampleTable table = make_resample_table(image.height, height);
  RowPlanes planes = make_planes(width, height);
  const std::size_t values = static_cast<std::size_t>(width) * 3;
  for (std::int32_t y = 0; y < height; ++y) {
    resample_column(rows.values.data(), values, table, static_cast<std::size_t>(y), planes.row(y, 0));
  }
  return planes;
}

}  // namespace tessera
