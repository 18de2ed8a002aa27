"""Colours of screenshots, and how well people with and without colour blindness tell them apart."""

import struct
import zlib


def rows_of(png):
    """Returns the number of channels, and the bytes of each row, of a PNG of 8-bit RGB or RGBA, as screenshots are."""
    at, data, width, channels = 8, b"", 0, 0
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, _, _, colour = struct.unpack(">IIBB", png[at + 8:at + 18])
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + size]
        at += size + 12
    raw, row = zlib.decompress(data), width * channels
    above, rows = bytearray(row), []
    for begin in range(0, len(raw), row + 1):
        kind, line = raw[begin], bytearray(raw[begin + 1:begin + 1 + row])
        for x in range(row if kind else 0):
            left = line[x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            up = above[x]
            if kind == 4:
                guess = left + up - corner
                distances = (abs(guess - left), abs(guess - up), abs(guess - corner))
                line[x] = (line[x] + (left, up, corner)[distances.index(min(distances))]) & 255
            else:
                line[x] = (line[x] + (left, up, (left + up) // 2)[kind - 1]) & 255
        rows.append(bytes(line))
        above = line
    return channels, rows


def colours(png):
    """Returns the number of pixels of each colour."""
    channels, rows = rows_of(png)
    counts = {}
    for row in rows:
        for x in range(0, len(row), channels):
            colour = row[x:x + 3]
            counts[colour] = counts.get(colour, 0) + 1
    return counts


# Matrices of Machado, Oliveira, Fernandes 2009: they map linear RGB to what people without one kind of cone see.
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(rgb):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]


def luminance(rgb):
    r, g, b = linear(rgb)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    """Returns WCAG's contrast ratio, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def distance(one, other, blindness):
    """Returns the distance in CIE Lab (D65) as seen with this blindness; about 2 is just noticeable."""
    def lab(rgb):
        matrix = BLINDNESS[blindness]
        r, g, b = (min(1, max(0, sum(m * c for m, c in zip(row, linear(rgb))))) for row in matrix)
        xyz = ((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883)
        x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in xyz)
        return 116 * y - 16, 500 * (x - y), 200 * (y - z)
    return sum((a - b) ** 2 for a, b in zip(lab(one), lab(other))) ** 0.5
