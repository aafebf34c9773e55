# Lines with markers over two axes. $series holds one block per line; the arrays hold their looks.
if (log_x) set logscale x
if (log_y) set logscale y
set xrange [x_min:x_max] noextend
set yrange [y_min:y_max] noextend
plot for [i = 1:|series_title|] $series index (i - 1) using 1:2 with linespoints \
  linecolor rgb series_color[i] dashtype series_dash[i] linewidth series_width[i] \
  pointtype series_marker[i] pointsize series_size[i] pointinterval series_marks[i] title series_title[i]
