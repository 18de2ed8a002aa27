// The order in which tokens of a row are drawn: by descending logit, ties by id.

// Returns a key that ascends in the order of the draw.
ulong order_key(float logit, uint id) {
  const uint bits = as_uint(logit + 0.0f);  // turns -0 into 0
  const uint ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (ulong)~ascending << 24 | id;
}
