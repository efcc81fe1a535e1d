"""Entries of a matrix from the arrays that ``ellect convert`` writes, with NumPy alone.

Each function reads the formats of one family. It returns rows, columns and values of all entries;
padding may be among them with the value 0 and column 0. ``multiply`` adds up their products.
"""

import json

import numpy as np


class Layout:
    """The arrays, numbers and dimensions of a layout; ``part`` is the prefix of their names."""

    def __init__(self, file, part=""):
        self.about = json.loads(file["layout.json"])
        self.file, self.part = file, part
        self.nrows, self.ncols = self.about["nrows"], self.about["ncols"]

    def get(self, name):
        """Return an array, whole numbers with 64 bits and a sign; None if it is not stored."""
        if self.part + name not in self.file:
            return None
        array = self.file[self.part + name]
        if name == "values" and self.about["format"].endswith("_bf16"):
            # The upper halves of f32.
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array if array.dtype.kind == "f" else array.astype(np.int64)

    def stored_bytes(self, name):
        """Return the bytes of an element as it is stored."""
        return self.file[self.part + name].itemsize

    def number(self, name):
        return self.about["numbers"][self.part + name]


def multiply(file, x):
    """Return the product of the matrix in an archive with a vector."""
    layout = Layout(file)
    rows, columns, values = FAMILIES[layout.about["format"]](layout)
    basis = layout.get("basis_order")
    if basis is not None:
        rows, columns = basis[rows], basis[columns]
    return np.bincount(rows, values * x[columns], layout.nrows)


def real(layout, rows, columns, values, order=None):
    """Drop padding, whose columns lie past the last one, and put rows in the order of y."""
    keep = (columns < layout.ncols) & (rows < layout.nrows)
    rows = rows[keep] if order is None else order[rows[keep]]
    return rows, columns[keep], values[keep]


def runs(ptr):
    """Return for each slot the run that holds it, and its place there; ``ptr`` has their starts."""
    run = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    return run, np.arange(ptr[-1]) - ptr[run]


def rows_of(layout):
    """csr, csr_f32 and others, and pcsr: entry by entry, row by row."""
    return runs(layout.get("row_ptr"))[0], layout.get("col_idx"), layout.get("values")


def coordinates(layout):
    """coo: entry by entry."""
    return layout.get("row_idx"), layout.get("col_idx"), layout.get("values")


def columns_of_slots(layout):
    """ell, ellr, ellg, jad, pjds and pellr: the k-th entries of all rows, for each k."""
    ptr = layout.get("col_ptr")
    if ptr is None:
        ptr = layout.number("pitch") * np.arange(layout.number("width") + 1)
    row = runs(ptr)[1]
    return real(layout, row, layout.get("col_idx"), layout.get("values"), layout.get("row_order"))


def hybrid(layout):
    """hyb: both parts."""
    parts = columns_of_slots(Layout(layout.file, "ell_")), coordinates(Layout(layout.file, "coo_"))
    return [np.concatenate(both) for both in zip(*parts, strict=True)]


def slices(layout):
    """hll, hll_f32 and others, biell and bijad: slots of a slice column by column; of a bisection, group by group."""
    height, ptr = layout.number("slice_rows"), layout.get("slice_ptr")
    part, slot = runs(ptr)
    groups = 6 if layout.about["format"].startswith("bi") else 1
    row = part // groups * height + slot % (height >> part % groups)
    columns = layout.get("col_idx")
    if columns is None:
        columns = layout.get("col_offset")
        columns = np.where(columns == 0xFFFF, layout.ncols, layout.get("base")[part] + columns)
    return real(layout, row, columns, layout.get("values"), layout.get("row_order"))


def quads(layout):
    """hll_vi: slices with four slots of a row side by side, and numbers of values."""
    hack, slot = runs(layout.get("slice_ptr"))
    columns, number = layout.get("col_idx"), layout.get("value_idx")
    if columns is None:
        columns = layout.get("col_offset")
        columns = np.where(columns == 0xFFFF, layout.ncols, layout.get("base")[hack] + columns)
    values = layout.get("values")[np.zeros_like(slot) if number is None else number]
    return real(layout, 32 * hack + slot % 128 // 4, columns, values, layout.get("row_order"))


def deltas(layout):
    """hll_du: as hll_vi, with columns in 1, 2 or 4 bytes and values by 16 bytes."""
    hack, slot = runs(layout.get("slice_ptr"))
    units, content = layout.get("units"), layout.get("col_bytes").astype(np.uint8)
    width = np.diff(units) * 128 // np.maximum(np.diff(layout.get("slice_ptr")), 1)
    distance = np.concatenate(
        [content[:0].astype(np.int64)]
        + [
            np.where((own := content[128 * u : 128 * e].view(f"<u{w}")) == ~own.dtype.type(0), -1, own)
            for u, e, w in zip(units, units[1:], width, strict=False)
            if w
        ]
    ).astype(np.int64)
    every = np.arange(len(slot))
    column = layout.get("first_col")[every // 128 * 4 + every % 4] + distance
    column = np.where(distance < 0, layout.ncols, column)
    values = layout.get("values")
    run, row, k = 16 // values.itemsize, every % 128 // 4, every % 4
    place = every // 128 * 128 + k // run * (run * 32) + row * run + k % run
    row = 32 * hack + slot % 128 // 4
    return real(layout, row, column, values[place], layout.get("row_order"))


def places_of_blocks(layout):
    """Block row and block column of each lane of each slot."""
    ptr = layout.get("hack_ptr")
    hack = runs(ptr)[0][:, None]
    block_row = np.broadcast_to(32 * hack + np.arange(32), (ptr[-1], 32))
    column, order = layout.get("col_idx"), layout.get("block_order")
    if column is None:
        column = layout.get("col_offset").reshape(-1, 32)
        column = np.where(column == 0xFFFF, layout.ncols, layout.get("base")[hack] + column)
    if order is not None:
        block_row = order[np.minimum(block_row, len(order) - 1)]
    return block_row, column


def complex_blocks(layout):
    """chll: of each block [[a, -b], [b, a]] the numbers a and b, 32 lanes side by side."""
    block_row, column = places_of_blocks(layout)
    a, b = layout.get("values").reshape(-1, 32, 2).transpose(2, 0, 1)
    row, column = 2 * block_row, 2 * column.reshape(-1, 32).astype(np.int64)
    rows = np.stack([row, row, row + 1, row + 1])
    columns = np.stack([column, column + 1, column, column + 1])
    return real(layout, rows.ravel(), columns.ravel(), np.stack([a, -b, b, a]).ravel())


def blocks(layout):
    """bhll: dense blocks, 32 lanes side by side."""
    b = layout.number("b")
    block_row, column = places_of_blocks(layout)
    element = np.arange(b * b)[None, :, None]
    rows = block_row[:, None, :] * b + element // b
    columns = column.reshape(-1, 1, 32) * b + element % b
    return real(layout, rows.ravel(), columns.ravel(), layout.get("values"))


def diagonals(layout):
    """dia and hdia: one value for each row of a hack."""
    hack, size = runs(layout.get("hack_ptr"))[0], layout.number("hack")
    rows = size * hack[:, None] + np.arange(size)
    columns = rows + layout.get("offsets")[:, None]
    columns = np.where(columns < 0, layout.ncols, columns)
    return real(layout, rows.ravel(), columns.ravel(), layout.get("values"))


def constants(layout):
    """cdia: one value for the rows of a hack that have a bit."""
    hack, size = runs(layout.get("hack_ptr"))[0], layout.number("hack")
    bits = np.unpackbits(layout.get("rows").astype("<u4").view(np.uint8), bitorder="little")
    piece, row = np.nonzero(bits.reshape(-1, size))
    rows = size * hack[piece] + row
    return rows, rows + layout.get("offsets")[piece], layout.get("values")[piece]


def tiles(layout):
    """st_csr, st_csr_f32 and others, and st_csr_vi: entries of a tile by column, with their places by row."""
    tile, extra, ends = layout.number("tile"), layout.number("extra"), layout.get("ends")
    head, values, number = layout.get("tiles"), layout.get("values"), layout.get("value_idx")
    slot = np.arange(len(head) * tile)
    thread, k, bits = slot // 8, slot % 8, tile.bit_length() - 1
    low, wide = layout.get("low"), layout.get("wide")
    place = low & (tile - 1)
    word = layout.get("high")[thread * (extra // 4) + k * extra // 32]
    far = low >> bits | (word >> k * extra % 32 & (1 << extra) - 1) << 16 - bits
    first, mask, warp = head[slot // tile, 2], head[slot // tile, 3], slot % tile // 256
    before = sum(mask >> w & 1 & (w < warp) for w in range(tile // 256))
    is_wide = mask >> warp & 1 == 1
    at = np.where(is_wide, 4 * ((first + before) * 32 + thread % 32) + k * 16 // 32, 0)
    if len(wide):
        far |= np.where(is_wide, (wide[at] >> k * 16 % 32 & 0xFFFF) << 16 - bits + extra, 0)
    column = layout.get("bases")[slot // 256, k * 32 // 64] + far
    size = 8 if layout.about["precision"] == "f64" else 4
    piece = 16 // size
    place ^= place // (8 * piece) % (8 // piece) * piece
    piece = 16 // layout.stored_bytes("values")
    value = slot // 256 * 256 + (k // piece * 32 + thread % 32) * piece + k % piece
    if layout.about["format"].endswith("_vi"):
        value = np.zeros_like(slot) if number is None else number
    found = []
    for t, (row, count, *_) in enumerate(head):
        own = ends[row + 2 * t :][: (count & 0xFFFF) + 2]
        # Slots past the last entry repeat it.
        entries, slots = np.unique(place[t * tile : (t + 1) * tile], return_index=True)
        slots = t * tile + slots[entries < own[-1]]
        rows = row - 1 + np.searchsorted(own[1:], entries[entries < own[-1]], side="right")
        found.append((rows, column[slots], values[value[slots]]))
    return [np.concatenate(each) for each in zip(*found, strict=True)]


def slabs(layout):
    """cache_blocked: a matrix in sorted tiles for each range of columns."""
    parts = sorted({name.split("_")[0] for name in layout.file if name.startswith("slab")})
    found = [tiles(Layout(layout.file, f"{part}_")) for part in parts]
    return [np.concatenate(each) for each in zip(*found, strict=True)]


def swept(layout):
    """column_sweep: entries of a block of rows by column, each with the number of its sum."""
    keys, bases, groups = layout.get("keys"), layout.get("bases"), layout.get("groups")
    values, longs, found = layout.get("values"), layout.get("long_rows"), []
    for step, steps, group, count, long, further, sums, _ in layout.get("blocks"):
        slot = np.arange(1024 * step, 1024 * (step + steps))
        slot = slot[keys[slot] >> 16 != 0xFFFF]
        row = np.zeros(sums, np.int64)
        row[: 4 * count] = (4 * groups[group : group + count, None] + np.arange(4)).ravel()
        for place, first, more in longs[long : long + further]:
            row[first : first + more] = row[place]
        found.append((row[keys[slot] >> 16], bases[slot // 32] + keys[slot] % 32768, values[slot]))
    return [np.concatenate(each) for each in zip(*found, strict=True)]


def cached_parts(layout):
    """ehyb: in-part entries with columns of the part's piece of x, and all others."""
    order, bounds, first = (layout.get(name) for name in ("row_order", "bounds", "first_slices"))
    s, slot = runs(layout.get("near_ptr"))
    part = np.searchsorted(first, s, side="right") - 1
    row, column = bounds[part] + 32 * (s - first[part]) + slot % 32, layout.get("near_col")
    keep = column != 0xFFFF
    near = (layout.get("pieces")[part] + column)[keep]
    near = order[near] if layout.number("gathers") else near
    s, slot = runs(layout.get("far_ptr"))
    others, far = 32 * s + slot % 32, layout.get("far_col")
    real_far = far != 0xFFFFFFFF
    rows = np.concatenate([row[keep], layout.get("far_rows")[others[real_far]]])
    columns = np.concatenate([near, far[real_far]])
    values = np.concatenate([layout.get("near_values")[keep], layout.get("far_values")[real_far]])
    return (rows if order is None else order[rows]), columns, values


def cached_hubs(layout):
    """hub_ell: entries in hubs and all others, by pieces of rows."""
    found, rows = [], layout.get("piece_rows") & 0x7FFFFFFF
    for part in ("near", "far"):
        s, slot = runs(layout.get(f"{part}_ptr"))
        piece = np.minimum(32 * s + slot % 32, len(rows) - 1)
        lengths = layout.get(f"{part}_lengths")
        keep = (slot // 32 < lengths[piece]) & (32 * s + slot % 32 < len(rows))
        columns = layout.get(f"{part}_col")[keep]
        columns = layout.get("hubs")[columns] if part == "near" else columns
        found.append((rows[piece[keep]], columns, layout.get(f"{part}_values")[keep]))
    return [np.concatenate(each) for each in zip(*found, strict=True)]


# The function of each format; a test compares the names with `ellect formats`.
FAMILIES = {
    **dict.fromkeys(["csr", "csr_f32", "csr_f16", "csr_bf16", "pcsr"], rows_of),
    "coo": coordinates,
    **dict.fromkeys(["ell", "ellr", "ellg", "jad", "pjds", "pellr"], columns_of_slots),
    "hyb": hybrid,
    **dict.fromkeys(["hll", "hll_f32", "hll_f16", "hll_bf16", "biell", "bijad"], slices),
    "hll_vi": quads,
    "hll_du": deltas,
    **dict.fromkeys(["bhll", "bhll_f32", "bhll_f16", "bhll_bf16"], blocks),
    "chll": complex_blocks,
    **dict.fromkeys(["dia", "hdia", "hdia_f32", "hdia_f16", "hdia_bf16"], diagonals),
    "cdia": constants,
    **dict.fromkeys(
        ["st_csr", "st_csr_f32", "st_csr_f16", "st_csr_bf16", "st_csr_vi"], tiles
    ),
    "cache_blocked": slabs,
    "column_sweep": swept,
    "ehyb": cached_parts,
    "hub_ell": cached_hubs,
}
