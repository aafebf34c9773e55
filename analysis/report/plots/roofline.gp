# A hierarchical roofline. $roofs: ceilings, one block each; $kernels: the points of one kernel at each
# boundary, joined, because they share the rate; $arrows: from one kernel's point to another's.
set logscale xy
set xrange [x_min:x_max] noextend
set yrange [y_min:y_max] noextend
left = 0.165
longest = 0
do for [i = 1:|kernel_title|] { longest = strlen(kernel_title[i]) > longest ? strlen(kernel_title[i]) : longest }
do for [i = 1:|boundary_title|] { longest = strlen(boundary_title[i]) > longest ? strlen(boundary_title[i]) : longest }
right = 1 - (7.6 * longest + 115.0) / width  # room for the key
bottom = 0.15
top = 0.97
set lmargin at screen left
set rmargin at screen right
set bmargin at screen bottom
set tmargin at screen top
# Angle of a line of slope 1 on this canvas. [degrees]
decades_x = log10(x_max / x_min)
decades_y = log10(y_max / y_min)
slope_angle = atan2((top - bottom) * height / decades_y, (right - left) * width / decades_x) * 180 / pi
# Labels run along their line, above it, or below it where another line is close above.
do for [i = 1:|roof_label|] {
  set label roof_label[i] at roof_x[i], roof_y[i] rotate by (roof_slanted[i] ? slope_angle : 0) \
    offset (!roof_slanted[i] ? 0 : roof_below[i] ? 0.9 : -0.35), \
    (!roof_below[i] ? 0.55 : roof_slanted[i] ? -0.15 : -0.65) \
    font "Helvetica,12" textcolor rgb "#444444"
}
do for [i = 1:arrow_count] {
  set arrow from arrow_x[i], arrow_y[i] to arrow_to_x[i], arrow_to_y[i] front head filled size screen 0.012, 20 \
    linewidth 1.1 linecolor rgb "#777777"
}
plot for [i = 1:|roof_label|] $roofs index (i - 1) using 1:2 with lines \
    linecolor rgb "#444444" linewidth 1.6 dashtype roof_dash[i] notitle, \
  for [i = 1:|kernel_title|] $kernels index (i - 1) using 1:2 with lines \
    linecolor rgb kernel_color[i] linewidth 1.2 notitle, \
  for [i = 1:|kernel_title|] for [b = 0:2] $kernels index (i - 1) every ::b::b using 1:2 with points \
    linecolor rgb kernel_color[i] pointtype kernel_marker[3 * (i - 1) + b + 1] pointsize 1.15 linewidth 1.6 notitle, \
  for [i = 1:|kernel_title|] NaN with points linecolor rgb kernel_color[i] \
    pointtype kernel_marker[3 * (i - 1) + 1] pointsize 1.15 title kernel_title[i], \
  for [i = 1:|boundary_title|] NaN with points linecolor rgb "#444444" \
    pointtype boundary_marker[i] pointsize 1.15 linewidth 1.6 title boundary_title[i]
