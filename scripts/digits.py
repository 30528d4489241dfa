#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/api/digits.u8 from scikit-learn's package: 1,797 handwritten digits of the UCI
repository (Alpaydin and Kaynak 1998), each 64 pixels from 0 to 16 and the digit, a byte each.

  scripts/digits.py OUT
"""

import sys

from sklearn.datasets import load_digits

digits = load_digits()
with open(sys.argv[1], "wb") as out:
    for pixels, digit in zip(digits.data, digits.target):
        out.write(bytes(int(p) for p in pixels) + bytes([int(digit)]))
