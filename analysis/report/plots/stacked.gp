# Horizontal stacked bars. $parts: one block per part, rows (x_low, x_high, y); bars are 0.62 high.
unset grid
set grid xtics linestyle 100
set border 1
set xrange [0:x_max] noextend
set yrange [y_min:y_max] noextend
set ytics scale 0
set style fill solid 1.0 border rgb "#222222"
do for [i = 1:|bar_label|] {
  set label bar_label[i] at bar_end[i], bar_y[i] left offset 0.6, 0 font "Helvetica,12" textcolor rgb "#222222"
}
set key outside top center horizontal maxrows 2 samplen 1.6 width 1
plot for [i = 1:|part_title|] $parts index (i - 1) using 1:3:1:2:($3 - 0.31):($3 + 0.31) with boxxyerror \
  fillstyle pattern part_pattern[i] border rgb "#222222" linecolor rgb part_color[i] title part_title[i]
