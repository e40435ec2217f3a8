"""The paper's own numbers, as data: what every report puts beside ours.

Tasks are (name, r) for actions in [-r, r].  Returns are the paper's "mean +- standard deviation of
(95-percentile) final returns"; its Tables 1, 3, 4 and 5 are of the best configuration over 10 seeds, its Table 2
and the hinge table of all configurations.  Times are its kappa, milliseconds for one max-Q problem.
"""

from __future__ import annotations

from typing import NamedTuple

Benchmark = tuple[str, float | None]
"""A task's name and its action range r; None for the task's own actions, which none of the paper's has."""


class Figure(NamedTuple):
    """One cell of a table of returns."""

    mean: float
    std: float
    extra: float | None = None
    """Table 3: % of max-Q solves saved. Table 4: mean GA iterations. Table 5: median kappa."""
    extra_std: float | None = None
    """Table 5: standard deviation of kappa."""


class Latency(NamedTuple):
    """One cell of the latency table, in milliseconds."""

    median: float
    std: float


Table = dict[Benchmark, dict[str, Figure]]

METHODS = ("caql-mip", "caql-ga", "caql-cem", "naf", "ddpg", "td3", "sac")
"""The columns of Tables 1 and 2."""
FILTER_COLUMNS = ("ga", "ga+df", "ga+df+c0.25", "ga+df+c0.5", "dual")
"""The columns of Table 3: dual filter, clustering with radius b, and the dual bound alone."""
TOLERANCE_COLUMNS = ("tol-1e-6", "tol-100", "dtol-100", "dtol-1", "dtol-0.1")
"""The columns of Table 4: constant tolerances, and dynamic ones by their k1."""
MIP_COLUMNS = ("mip-tol-1e-4", "mip-dtol-1")
"""The columns of Table 5."""
HINGE_COLUMNS = ("l2", "hinge")
"""The columns of the hinge table."""
LATENCY_COLUMNS = ("ga", "cem", "mip")
"""The columns of the latency table."""

TRAIN_STEPS = {
    "Pendulum": 200_000,
    "Hopper": 200_000,
    "Walker2D": 200_000,
    "HalfCheetah": 500_000,
    "Ant": 500_000,
    "Humanoid": 500_000,
}
SEEDS = 10


def _cells(columns: tuple[str, ...], text: str) -> dict[Benchmark, dict[str, tuple[float, ...]]]:
    table: dict[Benchmark, dict[str, tuple[float, ...]]] = {}
    for line in text.strip().splitlines():
        name, size, *cells = line.split()
        numbers = (tuple(float(number) for number in cell.split("/")) for cell in cells)
        table[name, float(size)] = dict(zip(columns, numbers, strict=True))
    return table


def _table(columns: tuple[str, ...], text: str) -> Table:
    rows = _cells(columns, text).items()
    return {task: {name: Figure(*numbers) for name, numbers in cells.items()} for task, cells in rows}


TABLE_1 = _table(
    METHODS,
    """
Pendulum    0.66 -339.5/158.3 -342.4/151.6 -394.6/246.5 -449.4/280.5 -407.3/180.3 -488.8/232.3 -789.6/299.5
Pendulum    1    -235.9/122.7 -237.0/135.5 -236.1/116.3 -312.7/242.5 -252.8/163.0 -279.5/186.8 -356.6/288.7
Pendulum    2    -143.2/161.0 -145.5/136.1 -144.5/208.8 -145.2/168.9 -146.2/257.6 -142.3/195.9 -163.3/190.1
Hopper      0.25 343.2/62.6   329.7/59.4   276.9/97.4   237.8/100.0  252.2/98.1   217.1/73.7   309.3/73.0
Hopper      0.5  411.7/115.2  341.7/139.9  342.9/142.1  248.2/113.2  294.5/108.7  280.1/80.0   309.1/95.8
Hopper      1    459.8/144.9  427.5/151.2  417.2/145.4  245.9/140.7  368.2/139.3  396.3/132.8  372.3/138.5
Walker2D    0.25 276.3/118.5  285.6/97.6   283.7/104.6  219.9/120.8  270.4/104.2  250.0/78.3   284.0/114.5
Walker2D    0.5  288.9/118.1  295.6/113.9  304.7/116.1  233.7/99.4   259.0/110.7  243.8/116.4  287.0/128.3
HalfCheetah 0.25 394.8/43.8   337.4/60.0   339.1/137.9  247.3/96.0   330.7/98.9   264.3/142.2  325.9/38.6
HalfCheetah 0.5  718.6/199.9  736.4/122.8  686.7/224.1  405.1/243.2  456.3/238.5  213.8/214.6  614.8/69.4
Ant         0.1  402.3/27.4   406.2/32.6   378.2/39.7   295.0/44.2   374.0/35.9   268.9/73.2   281.4/65.3
Ant         0.25 413.1/60.0   443.1/65.6   451.4/54.8   323.0/60.8   444.2/63.3   472.3/61.9   399.3/59.2
Humanoid    0.1  405.7/112.5  431.9/244.8  397.0/145.7  392.7/169.9  494.4/182.0  352.8/150.3  456.3/112.4
Humanoid    0.25 460.2/143.2  622.8/158.1  529.8/179.9  374.6/126.5  582.1/176.7  348.1/106.3  446.9/103.9
""",
)
"""Best configuration, 14 restricted tasks."""

TABLE_2 = _table(
    METHODS,
    """
Pendulum    0.66 -780.5/345.0 -766.6/344.2 -784.7/349.3 -775.3/353.4 -855.2/331.2 -942.1/308.3 -1144.8/195.3
Pendulum    1    -508.1/383.2 -509.7/383.5 -500.7/382.5 -529.5/377.4 -623.3/395.2 -730.3/389.4 -972.0/345.5
Pendulum    2    -237.3/487.2 -250.6/508.1 -249.7/488.5 -257.4/370.3 -262.0/452.6 -361.3/473.2 -639.5/472.7
Hopper      0.25 292.7/93.3   210.8/125.3  196.9/130.1  176.6/109.1  178.8/126.6  140.5/106.5  225.0/84.9
Hopper      0.5  332.2/119.7  222.2/138.5  228.1/135.7  192.8/101.6  218.3/129.6  200.2/100.7  243.6/81.6
Hopper      1    352.2/141.3  251.5/153.6  242.3/153.8  201.9/126.2  248.0/148.3  248.2/124.4  263.6/118.9
Walker2D    0.25 247.6/109.0  213.5/111.3  206.7/112.9  190.5/117.5  209.9/103.6  204.8/113.3  224.5/105.1
Walker2D    0.5  213.1/120.0  209.5/112.5  209.3/112.5  179.7/100.9  210.8/108.3  173.1/101.1  220.9/114.8
HalfCheetah 0.25 340.9/110.2  234.3/136.5  240.4/143.1  169.7/123.7  228.9/118.1  192.9/136.8  260.7/108.5
HalfCheetah 0.5  395.1/275.2  435.5/273.7  377.5/280.5  271.8/226.9  273.8/199.5  119.8/139.6  378.3/219.6
Ant         0.1  319.4/69.3   327.5/67.5   295.5/71.9   260.2/53.1   298.4/67.6   213.7/40.8   205.9/34.9
Ant         0.25 362.3/60.3   388.9/63.9   392.9/67.1   270.4/72.5   381.9/63.3   377.1/93.5   314.3/88.2
Humanoid    0.1  326.6/93.5   235.3/165.4  227.7/143.1  261.6/154.1  259.0/188.1  251.7/127.5  377.5/90.3
Humanoid    0.25 267.0/163.8  364.3/215.9  309.4/186.3  270.2/124.6  347.3/220.8  262.8/109.2  381.0/84.4
""",
)
"""All configurations, the same tasks."""

TABLE_3 = _table(
    FILTER_COLUMNS,
    """
Pendulum    2   -144.6/154.2/0.0 -146.1/229.8/26.5 -146.7/216.8/79.7 -149.9/215.0/81.2 -175.1/246.8/100.0
Hopper      1   414.9/181.9/0.0  424.8/176.7/9.11  396.3/138.8/38.2  371.2/171.7/61.5  270.2/147.6/100.0
Walker2D    1   267.6/107.3/0.0  236.1/99.6/12.4   249.2/125.1/33.6  235.6/108.1/50.8  201.5/136.0/100.0
HalfCheetah 1   849.0/108.9/0.0  737.3/170.2/5.51  649.5/146.7/15.4  445.4/207.8/49.1  406.6/206.4/100.0
Ant         0.5 370.0/106.5/0.0  275.1/92.1/3.19   271.5/94.3/14.3   214.0/75.4/31.1   161.1/54.7/100.0
Humanoid    0.4 702.7/162.9/0.0  513.9/146.0/13.8  458.2/120.4/52.1  387.7/117.4/80.8  333.3/117.9/100.0
""",
)
"""Dual filter and clustering, CAQL-GA on the full ranges; third number: % of max-Q solves saved."""

TABLE_4 = _table(
    TOLERANCE_COLUMNS,
    """
Pendulum    2   -144.5/195.6/200.0 -158.1/165.0/1.0 -144.1/159.2/45.4  -143.7/229.5/58.1 -144.2/157.6/69.5
Hopper      1   371.4/199.9/200.0  360.4/158.9/1.0  441.4/141.3/46.0   460.0/127.8/59.5  452.5/137.0/78.4
Walker2D    1   273.6/112.4/200.0  281.6/121.2/1.0  282.0/104.5/47.4   309.0/118.8/59.8  292.7/113.8/71.2
HalfCheetah 1   837.5/130.6/200.0  729.3/313.8/1.0  896.6/145.7/91.2   864.4/123.1/113.5 894.0/159.9/140.7
Ant         0.5 373.1/118.5/200.0  420.7/148.8/1.0  364.4/111.324/86.3 388.2/110.7/109.5 429.3/139.3/139.7
Humanoid    0.4 689.8/193.9/200.0  500.2/214.9/1.0  716.2/191.4/88.6   689.5/191.6/115.9 710.9/188.4/133.4
""",
)
"""Dynamic tolerance, CAQL-GA on the full ranges; third number: mean iterations. Ant, tol-100: drops after its peak."""

TABLE_5 = _table(
    MIP_COLUMNS,
    """
HalfCheetah 0.5  718.6/199.9/263.5/88.269 764.5/132.9/118.5/75.616
Ant         0.1  402.3/27.4/80.7/100.945  404.9/27.7/40.3/24.09
Ant         0.25 413.1/60.0/87.6/160.921  424.9/60.9/62.0/27.646
Humanoid    0.1  405.7/112.5/145.7/27.381 475.0/173.4/29.1/10.508
Humanoid    0.25 460.2/143.2/71.2/45.763  410.1/174.4/39.7/11.088
""",
)
"""Dynamic tolerance of CAQL-MIP; third and fourth number: median and standard deviation of kappa."""

LATENCY = {
    task: {name: Latency(*numbers) for name, numbers in cells.items()}
    for task, cells in _cells(
        LATENCY_COLUMNS,
        """
Hopper      1    0.093/0.015 0.375/0.059 83.515/209.172
Walker2D    0.5  0.093/0.015 0.406/0.075 104.968/178.797
HalfCheetah 0.5  0.093/0.015 0.296/0.072 263.453/88.269
Ant         0.25 0.109/0.018 0.343/0.054 87.64/160.921
Humanoid    0.25 0.14/0.022  0.64/0.113  71.171/45.763
""",
    ).items()
}
"""Median and standard deviation of kappa, by solver."""

HINGE = _table(
    HINGE_COLUMNS,
    """
Pendulum    2   -244.488/497.467 -232.307/476.41
Hopper      1   253.459/158.578  130.846/92.298
Walker2D    1   207.916/100.669  173.16/106.138
HalfCheetah 1   628.44/234.809   532.16/192.558
Ant         0.5 256.804/90.335   199.667/84.116
Humanoid    0.4 443.735/223.856  297.097/151.533
""",
)
"""l2 against hinge loss, CAQL-GA, all configurations."""
